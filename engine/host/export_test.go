package host

// EveryProgram is the list of variables, for the test that holds the documentation to it.
func EveryProgram() []string { return everyProgram }
