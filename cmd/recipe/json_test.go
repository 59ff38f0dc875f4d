package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// jsonCommands are all that take --json.
func jsonCommands(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	if c.Flags().Lookup("json") != nil {
		out = append(out, c)
	}
	for _, sub := range c.Commands() {
		out = append(out, jsonCommands(sub)...)
	}
	return out
}

// documents are the JSON texts that a command has written, one after the other.
func documents(t *testing.T, out []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var one map[string]any
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		all = append(all, one)
	}
}

// failure runs a command that fails, and returns the last line of its output.
func failure(t *testing.T, dir string, code int, args ...string) map[string]any {
	t.Helper()
	cmd := exec.Command("recipe", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "HOME="+dir)
	out, _ := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("recipe %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	all := documents(t, out)
	if len(all) == 0 {
		t.Fatalf("recipe %s wrote nothing to standard output", strings.Join(args, " "))
	}
	last := all[len(all)-1]
	list, _ := last["diagnostics"].([]any)
	if last["format_version"] == nil || last["valid"] != false || last["error_count"] == 0 || len(list) == 0 ||
		list[0].(map[string]any)["summary"] == "" {
		t.Errorf("recipe %s: %v", strings.Join(args, " "), last)
	}
	if lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n"); !json.Valid([]byte(lines[len(lines)-1])) {
		t.Errorf("recipe %s: the failure is not one line:\n%s", strings.Join(args, " "), out)
	}
	return last
}

// With --json every command writes JSON, and a failure as one line in one form, whatever fails.
func TestFailuresAsJSON(t *testing.T) {
	t.Parallel()
	commands := jsonCommands(newRoot(newApp(strings.NewReader(""), io.Discard, io.Discard, nil)))
	if len(commands) < 25 {
		t.Fatalf("only %d commands take --json", len(commands))
	}
	placeholder := regexp.MustCompile(`\[[^]]*\]|[A-Z][A-Z]+`)
	for _, c := range commands {
		words := strings.Fields(c.CommandPath())[1:]
		t.Run(strings.Join(words, " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			failure(t, dir, exitFailed, append(words, "--json", "--no-such-flag")...)
			failure(t, dir, exitFailed, append(words, "--no-such-flag", "--json")...)
			if c.Args == nil {
				return
			}
			needed := 0
			for _, word := range placeholder.FindAllString(c.Use, -1) {
				if !strings.HasPrefix(word, "[") {
					needed++
				}
			}
			switch c.CommandPath() {
			case "recipe version", "recipe runs", "recipe plugin list", "recipe doctor", "recipe trust list",
				"recipe env agents": // succeed here
				return
			}
			args := append(words, "--json")
			for range needed {
				args = append(args, "none.hcl")
			}
			failure(t, dir, exitFailed, args...)
		})
	}
}

// What is wrong in a recipe, in a plan, and in the eyes of a policy has the form of every other failure.
func TestFailuresOfRecipesAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"invalid.hcl":      "inference \"tiny\" \"policy\" { nope = 1 }\n",
		"fine.hcl":         "inference \"tiny\" \"policy\" {}\n",
		"no.policy.hcl":    "deny \"all\" {\n  condition = true\n  message = \"not on a Friday\"\n}\n",
		"invalid.test.hcl": "nope\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"apply", "-y"}, {"plan"}, {"validate"}, {"init"}} {
		got := failure(t, dir, exitFailed, append(args, "--json", "invalid.hcl")...)
		item := got["diagnostics"].([]any)[0].(map[string]any)
		if r, _ := item["range"].(map[string]any); r["file"] != "invalid.hcl" {
			t.Errorf("recipe %s: no place of the mistake: %v", args[0], item)
		}
	}
	failure(t, dir, exitFailed, "env", "try", "--json", "invalid.hcl", "environment.a.b")
	failure(t, dir, exitFailed, "apply", "--json", "fine.hcl") // it is not approved
	got := failure(t, dir, exitDenied, "apply", "-y", "--json", "--policy", "no.policy.hcl", "fine.hcl")
	if item := got["diagnostics"].([]any)[0].(map[string]any); item["summary"] != "not on a Friday" {
		t.Errorf("the reason is not in %v", got)
	}
}
