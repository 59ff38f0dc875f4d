package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestTheExamplesOfCIRun runs the scripts of docs/ci/github.yml and gitlab.yml on the quickstart: what checks and plans
// with this program, what posts to GitHub with a gh of the test, and what posts to GitLab with curl and a server of the
// test. The lines that install the program are left out.
func TestTheExamplesOfCIRun(t *testing.T) {
	t.Parallel()
	t.Run("github", func(t *testing.T) {
		t.Parallel()
		dir := example(t)
		var workflow struct {
			Jobs struct {
				Plan struct {
					Steps []struct {
						Name, Run string
						Env       map[string]string
					}
				}
			}
		}
		parse(t, "github.yml", &workflow)
		bin := filepath.Join(t.TempDir(), "gh")
		// gh pr comment NUMBER --body-file FILE --edit-last --create-if-none
		gh := "#!/bin/sh\n[ \"$1 $2 $3 $4 $6 $7\" = \"pr comment 7 --body-file --edit-last --create-if-none\" ] || exit 2\n" +
			"cat \"$5\"\n"
		if err := os.WriteFile(bin, []byte(gh), 0o700); err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, step := range workflow.Jobs.Plan.Steps {
			if step.Run == "" || step.Name == "Install" {
				continue
			}
			if strings.Contains(step.Run, "${{") {
				t.Errorf("%s: an expression in a script can inject commands; pass it by env", step.Name)
			}
			out, err := shell(t, dir, step.Run, "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "PULL_REQUEST=7",
				"GITHUB_ACTIONS=true", "GITHUB_WORKSPACE="+dir)
			if err != nil {
				t.Errorf("%s: %v\n%s", step.Name, err, out)
			}
			if step.Name == "Comment" && !strings.Contains(out, "Plan: 5 to create") {
				t.Errorf("the comment is no plan: %s", out)
			}
			ran++
		}
		if ran != 4 {
			t.Errorf("%d scripts ran, want 4", ran)
		}
	})
	t.Run("gitlab", func(t *testing.T) {
		t.Parallel()
		dir := example(t)
		var pipeline struct {
			Plan struct {
				Script      []string
				AfterScript []string `yaml:"after_script"`
			}
		}
		parse(t, "gitlab.yml", &pipeline)
		notes := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/projects/3/merge_requests/7/notes" ||
				r.Header.Get("PRIVATE-TOKEN") != "a-token" {
				http.Error(w, "unexpected request", http.StatusBadRequest)
				return
			}
			notes <- r.FormValue("body")
		}))
		defer server.Close()
		if len(pipeline.Plan.Script) != 3 || len(pipeline.Plan.AfterScript) != 1 {
			t.Fatalf("the file has other scripts than this test knows: %+v", pipeline)
		}
		for _, script := range slices.Concat(pipeline.Plan.Script, pipeline.Plan.AfterScript) {
			out, err := shell(t, dir, script, "CI_PROJECT_DIR="+dir, "CI_API_V4_URL="+server.URL, "CI_PROJECT_ID=3",
				"CI_MERGE_REQUEST_IID=7", "RECIPE_TOKEN=a-token", "no_proxy=127.0.0.1")
			if err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
		}
		if note := <-notes; !strings.Contains(note, "Plan: 5 to create") {
			t.Errorf("the note is no plan: %s", note)
		}
		report, err := os.ReadFile(filepath.Join(dir, "code-quality.json"))
		if err != nil || !bytes.HasPrefix(report, []byte("[")) {
			t.Errorf("the report: %s, %v", report, err)
		}
	})
}

func parse(t *testing.T, name string, into any) {
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
