package script_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Blocks would run in the environment that is activated where the tests are run, if it is still there.
	if err := os.Unsetenv("VIRTUAL_ENV"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
