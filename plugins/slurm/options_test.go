package slurm

import (
	"strings"
	"testing"
)

func TestOptionsOfTheExecutorAreRefused(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{
		"--exclusive":                    "",
		"--nice=100":                     "",
		"--dependency afterok:1":         "",
		`--constraint="a -b"`:            "",
		"--nodelist=n1":                  "",
		"--ntasks-per-core=1":            "",
		"--mem-per-cpu=1G":               "",
		"rm -rf":                         "Not an option",
		"--a\nb":                         "Not an option",
		"--":                             "executor sets itself",
		"--comment=hello":                "--comment is not allowed",
		"--comm=hello":                   "--comment is not allowed",
		"--comment hello":                "--comment is not allowed",
		"--clusters=c2":                  "one cluster",
		"--array=0-9":                    "count or for_each",
		"--wrap=hostname":                "--wrap is not allowed",
		"--test-only":                    "nothing would be submitted",
		"--exclusive --array=0-9":        "Several options",
		"--exclusive -M c2":              "Several options",
		`--constraint="a" --comment="b"`: "Several options",
		"--requeue":                      "see restart",
	} {
		problems := Config{}.Validate(Config{Options: []string{"--exclusive", option}})
		got := ""
		for _, p := range problems {
			got += p.Summary + ": " + p.Detail
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("option %q: %q; expected %q in it", option, got, want)
		}
	}
}
