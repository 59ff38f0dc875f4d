package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requests is a folder as the workflow of GitHub has it: the base in base, the pull request in pr, each a checkout.
func requests(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range []string{"base", "pr"} {
		if err := os.Rename(example(t), filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
		if out, err := shell(t, filepath.Join(top, name), "mkdir .git && recipe trust lock train.hcl"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return top
}

// githubSteps are the scripts of docs/ci/github.yml, without the one that installs the program.
func githubSteps(t *testing.T) (plan, comment []ciStep) {
	t.Helper()
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Steps       []ciStep
		}
	}
	parse(t, "github.yml", &workflow)
	if len(workflow.Permissions) != 0 || len(workflow.Jobs["plan"].Permissions) != 1 ||
		workflow.Jobs["plan"].Permissions["contents"] != "read" ||
		len(workflow.Jobs["comment"].Permissions) != 1 {
		t.Errorf("the workflow has more rights than it needs: %+v", workflow)
	}
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)
	for name, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if step.Uses != "" && !pinned.MatchString(step.Uses) {
				t.Errorf("%s is not pinned by digest", step.Uses)
			}
			if strings.HasPrefix(step.Uses, "actions/checkout") && (name != "plan" ||
				step.With["persist-credentials"] != false) {
				t.Errorf("%s: a checkout keeps the token, or lies beside the right to comment: %v", name, step.With)
			}
			if strings.Contains(step.Run, "${{") {
				t.Errorf("%s: an expression in a script can inject commands; pass it by env", step.Name)
			}
		}
	}
	scripts := func(job string) []ciStep {
		return slices.DeleteFunc(slices.Clone(workflow.Jobs[job].Steps),
			func(s ciStep) bool { return s.Run == "" || s.Name == "Install" })
	}
	return scripts("plan"), scripts("comment")
}

type ciStep struct {
	Name, Run, Uses string
	With            map[string]any
	Dir             string `yaml:"working-directory"`
}

// TestTheExamplesOfCIRun runs the scripts of docs/ci/github.yml and gitlab.yml on the quickstart: what checks and plans
// with this program, what posts to GitHub with a gh of the test, and what posts to GitLab with curl and a server of the
// test. The lines that install the program and fetch the base are left out.
func TestTheExamplesOfCIRun(t *testing.T) {
	t.Parallel()
	t.Run("github", func(t *testing.T) {
		t.Parallel()
		top := requests(t)
		bin := filepath.Join(t.TempDir(), "gh")
		// gh pr comment NUMBER --body-file FILE --edit-last --create-if-none
		gh := "#!/bin/sh\n[ \"$1 $2 $3 $4 $6 $7\" = \"pr comment 7 --body-file --edit-last --create-if-none\" ] || exit 2\n" +
			"cat \"$5\"\n"
		if err := os.WriteFile(bin, []byte(gh), 0o700); err != nil {
			t.Fatal(err)
		}
		output := filepath.Join(t.TempDir(), "output")
		plan, comment := githubSteps(t)
		if len(plan) != 3 || len(comment) != 1 {
			t.Fatalf("the file has other scripts than this test knows: %+v %+v", plan, comment)
		}
		for _, step := range plan {
			out, err := shell(t, filepath.Join(top, step.Dir), step.Run, "GITHUB_ACTIONS=true", "CI=true",
				"GITHUB_WORKSPACE="+top,
				"GITHUB_OUTPUT="+output)
			if err != nil {
				t.Errorf("%s: %v\n%s", step.Name, err, out)
			}
		}
		text, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(text), "\n")
		body, after, ended := strings.Cut(rest, "\n"+strings.TrimPrefix(head, "plan<<")+"\n")
		if !ended || after != "" || !strings.HasPrefix(head, "plan<<") {
			t.Fatalf("the output of the job is %q", text)
		}
		out, err := shell(t, t.TempDir(), comment[0].Run, "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "PULL_REQUEST=7",
			"PLAN="+body)
		if err != nil || !strings.Contains(out, "Plan: 5 to create") {
			t.Errorf("the comment is no plan: %v, %s", err, out)
		}
	})
	t.Run("gitlab", func(t *testing.T) {
		t.Parallel()
		top := requests(t)
		dir := filepath.Join(top, "pr")
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
		script, note := gitlabScripts(t)
		for _, line := range script {
			out, err := shell(t, dir, line, "CI=true", "CI_PROJECT_DIR="+dir, "BASE="+filepath.Join(top, "base"))
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
		for _, line := range note {
			out, err := shell(t, dir, line, "CI_API_V4_URL="+server.URL, "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=7",
				"RECIPE_TOKEN=a-token", "no_proxy=127.0.0.1")
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
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

func gitlabScripts(t *testing.T) (plan, note []string) {
	t.Helper()
	var pipeline map[string]struct{ Script []string }
	parse(t, "gitlab.yml", &pipeline)
	plan, note = pipeline["plan"].Script, pipeline["note"].Script
	if len(plan) != 3 || len(note) != 1 {
		t.Fatalf("the file has other scripts than this test knows: %+v", pipeline)
	}
	return plan, note
}

// TestAHostilePullRequestRunsNothing gives the documented workflows a pull request that changes the recipe, its lock,
// its approvals, the policies and the tests, and adds a plugin, a Python file and settings: none of it runs, and no
// secret of the job is printed.
func TestAHostilePullRequestRunsNothing(t *testing.T) {
	t.Parallel()
	top := requests(t)
	dir := filepath.Join(top, "pr")
	strangers, ran := strangersFolder(t)
	copied := exec.CommandContext(t.Context(), "cp", "-a", strangers+"/.", dir)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	evil := "#!/bin/sh\nenv > " + filepath.Join(ran, "policy") + "\necho '{}'\n"
	test := "run \"all\" {\n  command = apply\n}\n"
	for name, text := range map[string]string{"ci/limits.py": evil, "ci/limits.test.hcl": test, "ci/more.test.hcl": test,
		"recipe/config.hcl": "policies = [\"../ci/limits.py\"]\n", "train.lock.hcl": "lock_version = 1\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Its own approvals say that all of it is trusted.
	if out, err := shell(t, dir, "recipe trust lock train.hcl words.py program cluster kc.yaml login py"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	output := filepath.Join(t.TempDir(), "output")
	environ := append(fresh(t)[len(os.Environ()):], "GITHUB_ACTIONS=true", "CI=true", "GITHUB_WORKSPACE="+top,
		"GITHUB_OUTPUT="+output,
		"GITHUB_TOKEN=canary", "BASE="+filepath.Join(top, "base"), "CI_PROJECT_DIR="+dir)
	type script struct{ name, dir, run string }
	var scripts []script
	plan, _ := githubSteps(t)
	for _, s := range plan {
		scripts = append(scripts, script{"github " + s.Name, filepath.Join(top, s.Dir), s.Run})
	}
	lines, _ := gitlabScripts(t)
	for _, line := range lines {
		scripts = append(scripts, script{"gitlab " + line, dir, line})
	}
	refused := 0
	for _, s := range scripts {
		out, err := shell(t, s.dir, s.run, environ...)
		if err != nil {
			refused++
		}
		nothingRan(t, ran, s.name)
		if strings.Contains(out, "canary") {
			t.Errorf("%s prints a secret:\n%s", s.name, out)
		}
	}
	if refused < 4 { // check, test and plan of GitHub, test and plan of GitLab
		t.Errorf("%d scripts fail", refused)
	}
	for _, file := range []string{output, filepath.Join(top, "plan.md"), filepath.Join(dir, "plan.md")} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "ot trusted") || strings.Contains(string(text), "canary") {
			t.Errorf("%s does not say that something is not trusted, or has a secret: %v\n%s", file, err, text)
		}
	}
	// The one that is handed over must not be the request's.
	out, err := shell(t, dir, "recipe plan --trust-lock train.trust.json train.hcl", environ...)
	if err == nil || !strings.Contains(out, "lies in the checkout") {
		t.Errorf("its own approvals: %v\n%s", err, out)
	}
	nothingRan(t, ran, "a plan with its own approvals")
}
