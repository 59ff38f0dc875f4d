package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// workflowCommand is what a runner of GitHub or Azure takes for a command, as their sources do.
var workflowCommand = regexp.MustCompile(`(?m)(?:^|\r)[\s\x{feff}\x{a0}]*::|##\[|(?i:##vso\[)`)

func TestWorkflowCommandsCannotBeForged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"::error::x", "a\n::stop-commands::x", "a\r::add-mask::x", "a\r\n \t::error::x", "\u00a0::error::x", "\u2028::x",
		"x ##[error]y", "##vso[task.setvariable variable=a]b", "a ##VSO[x]", "###[error]x", "\n\n   ::x", "\ufeff::x",
	} {
		for size := 1; size <= len(text); size++ { // however the text is cut into writes
			var out bytes.Buffer
			g := &workflowGuard{to: &out}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := g.Write(rest[:min(size, len(rest))]); n != min(size, len(rest)) || err != nil {
					t.Fatal(n, err)
				}
			}
			if workflowCommand.MatchString(out.String()) {
				t.Errorf("%q in writes of %d becomes %q", text, size, out.String())
			}
			if strings.ReplaceAll(out.String(), `\`, "") != text {
				t.Errorf("%q becomes %q", text, out.String())
			}
		}
	}
}

// What is no command stays as it is, and JSON stays the same value.
func TestTheGuardChangesNothingElse(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	g := &workflowGuard{to: &out}
	text := "a::b\n: x :: y\n# [x] ## heading\n[1]\n\xff\xfe é\n"
	if _, err := g.Write([]byte(text)); err != nil || out.String() != text {
		t.Errorf("%q becomes %q, %v", text, out.String(), err)
	}
	out.Reset()
	value := map[string]string{"x": "##[error]y ##vso[z] ::"}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&workflowGuard{to: &out, json: true}).Write(encoded); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["x"] != value["x"] ||
		workflowCommand.Match(out.Bytes()) {
		t.Errorf("%s: %v, %v", out.Bytes(), got, err)
	}
}

// A recipe that says workflow commands wherever it can prints none of them; the annotations are printed.
func TestARecipeForgesNoAnnotations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "train.hcl")
	if err := os.WriteFile(file, []byte(`variable "x" {
  default = 1
  validation {
    condition     = var.x > 5
    error_message = "bad\n::set-output name=owned::1\n  ::error file=R.md::approved\r::add-mask::recipe ##[error]x"
  }
}
inference "tiny" "policy" {}
output "o" {
  value = "x\n::notice::from a value ##vso[task.complete]"
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, runner := range []string{"GITHUB_ACTIONS=true", "TF_BUILD=True"} {
		for _, args := range [][]string{
			{"validate", file}, {"plan", file}, {"plan", "--markdown", file}, {"plan", "--json", file}, {"graph", file},
			{"fmt", "--check", "--diff", file}, {"doctor", file}, {"show", file}, {"validate", dir + "/\n::error::x.hcl"},
			{"::error::x"}, {"test", dir}, {"init", file},
		} {
			var out, errs, own bytes.Buffer
			a := newApp(strings.NewReader(""), &out, &errs, append(os.Environ(), runner))
			a.machine = roomy
			execute(t.Context(), a, args)
			for line := range strings.Lines(out.String() + errs.String()) {
				if runner == "GITHUB_ACTIONS=true" && (strings.HasPrefix(line, "::error file="+file+",line=") ||
					strings.HasPrefix(line, "::error title=Recipe not found::")) {
					own.WriteString(line) // in which everything else is data
					continue
				}
				if workflowCommand.MatchString(line) {
					t.Errorf("%s recipe %q prints %q", runner, args, line)
				}
			}
			if args[0] == "validate" && args[1] == file && runner == "GITHUB_ACTIONS=true" && own.Len() == 0 {
				t.Errorf("no annotation was printed: %s", errs.String())
			}
		}
	}
}
