//go:build !linux

package trust

// HideEnvironment does nothing here: there is no /proc.
func HideEnvironment() {}
