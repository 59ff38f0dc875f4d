package recipetest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/recipetest"
)

// What a run of a file takes does not grow with the runs before it: a stranger's file may have thousands.
func TestManyRunsTakeNoMoreEach(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "many.test.hcl")
	var text strings.Builder
	const runs = 300
	for i := range runs {
		fmt.Fprintf(&text, "run \"r%d\" {\n  command = plan\n  assert {\n"+
			"    condition     = %d == 0 || run.r0.output.o == 1\n    error_message = \"x\"\n  }\n}\n", i, i)
	}
	text.WriteString("run \"wrong\" {\n  command = plan\n  assert {\n    condition     = run.r1.output.o == 2\n" +
		"    error_message = \"o is ${run.r1.output.o}\"\n  }\n}\n")
	if err := errors.Join(os.WriteFile(file, []byte(text.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "many.hcl"), []byte("output \"o\" {\n  value = 1\n}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var allocated []uint64
	report, err := recipetest.Run(t.Context(), []string{file}, recipetest.Options{Done: func(*recipetest.Result) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		allocated = append(allocated, m.TotalAlloc)
	}})
	if err != nil || report.Passed != runs || report.Failed != 1 || len(report.Runs[runs].Diagnostics) != 1 ||
		report.Runs[runs].Diagnostics[0].Detail != "o is 1" {
		t.Fatalf("%v, %d passed, the last: %+v", err, report.Passed, report.Runs[len(report.Runs)-1].Diagnostics)
	}
	first, last := allocated[20]-allocated[10], allocated[runs-1]-allocated[runs-11]
	if last > 3*first {
		t.Errorf("ten runs at the end of a file take %d bytes, ten at its beginning %d", last, first)
	}
}
