package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// example copies the recipe and the policies of docs/ci into a folder, laid out as the examples expect it.
func example(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copyFile(t, filepath.Join(repository, "recipes", "quickstart.hcl"), filepath.Join(dir, "train.hcl"))
	files, err := filepath.Glob(filepath.Join(repository, "docs", "ci", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("docs/ci: %v, %v", files, err)
	}
	for _, file := range files {
		copyFile(t, file, filepath.Join(dir, "ci", filepath.Base(file)))
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shell runs one script as a CI system does, and returns what it printed.
func shell(t *testing.T, dir, script string, environ ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", script)
	cmd.Dir = dir
	settings, err := filepath.Abs(filepath.Join("testdata", "settings.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), append([]string{"RECIPE_CONFIG=" + settings}, environ...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func readExample(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "ci", name))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPolicyExamples asks the policies of docs/ci in Python and in HCL about a plan within its limits and one beyond
// them, and the one for Open Policy Agent, too, where that is installed.
//
//docs:ci.md Recipes in CI
func TestPolicyExamples(t *testing.T) {
	t.Parallel()
	policies := []string{"ci/limits.py", "ci/limits.policy.hcl"}
	if _, err := exec.LookPath("opa"); err == nil {
		policies = append(policies, "ci/opa.sh")
	}
	dir := example(t)
	for _, policy := range policies {
		if out, err := shell(t, dir, "recipe plan --policy "+policy+" train.hcl"); err != nil {
			t.Errorf("%s denies 300 steps: %v\n%s", policy, err, out)
		}
		out, err := shell(t, dir, "recipe plan --var steps=1001 --policy "+policy+" train.hcl")
		want := "policy " + policy + ": trainer.tiny.policy: steps is 1001; more than 1000 need a review"
		if exitStatus(err) != exitDenied || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwant status %d and %q", policy, err, out, exitDenied, want)
		}
	}
}

// TestTheConditionsOfCI holds the limits of docs/ci as conditions against a plan within them and one beyond them.
//
//docs:ci.md Recipes in CI
func TestTheConditionsOfCI(t *testing.T) {
	t.Parallel()
	dir := example(t)
	const test = "recipe test --recipe train.hcl ci/limits.test.hcl"
	if out, err := shell(t, dir, test); err != nil {
		t.Errorf("300 steps: %v\n%s", err, out)
	}
	out, err := shell(t, dir, "sed -i.old 's/= 300/= 1001/' train.hcl && "+test)
	if exitStatus(err) != exitFailed || !strings.Contains(out, "more than 1000 steps need a review") {
		t.Errorf("1001 steps: %v\n%s", err, out)
	}
}

func exitStatus(err error) int {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as exec returns it
		return exit.ExitCode()
	}
	return -1
}
