package host

import (
	"os"
	"path/filepath"
)

// EveryProgram is the list of variables, for the test of the documentation.
func EveryProgram() []string { return everyProgram }

// HasRecord reports whether a plugin process is recorded in a block's directory.
func HasRecord(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, RecordName))
	return err == nil
}
