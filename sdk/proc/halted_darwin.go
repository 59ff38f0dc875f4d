package proc

// Halted explains why a process does not run; empty: it runs, or the system does not say.
func Halted(int) string { return "" }
