package main

import (
	"bytes"
	"encoding/json"
	"io"
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
	readExample(t, "github.yml", &workflow)
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
	plan, comment = scripts("plan"), scripts("comment")
	if len(plan) != 3 || len(comment) != 1 {
		t.Fatalf("the file has other scripts than this test knows: %+v %+v", plan, comment)
	}
	return plan, comment
}

type ciStep struct {
	Name, Run, Uses, If string
	With                map[string]any
	Dir                 string `yaml:"working-directory"`
}

// TestTheExamplesOfCIRun runs the scripts of docs/ci/github.yml and gitlab.yml as the two systems do: what checks and
// plans with this program, what posts with a gh and a GitLab of the test. The lines that install the program and fetch
// the base are left out.
//
//docs:ci.md Recipes in CI
func TestTheExamplesOfCIRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, change string // a script in the checkout of the request
		want         string // of the comment
		fails        bool
	}{
		{name: "good", change: "true", want: "Plan: 5 to create"},
		{name: "with an error", change: "sed -i.old s/steps/stepps/ train.hcl", fails: true,
			want: "The recipe has errors, so there is no plan."},
		{name: "not formatted", change: "sed -i.old 's/ = var.steps/    = var.steps/' train.hcl", fails: true,
			want: "`recipe fmt train.hcl` formats the recipe."},
		{name: "denied", change: "sed -i.old 's/= 300/= 2000/' train.hcl", fails: true,
			want: "steps is 2000; more than 1000 need a review"},
	} {
		t.Run("github "+c.name, func(t *testing.T) {
			t.Parallel()
			top := requests(t)
			pr := filepath.Join(top, "pr")
			if out, err := shell(t, pr, c.change); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			body, failed := githubPlan(t, top)
			if failed != c.fails || !strings.Contains(body, c.want) {
				t.Errorf("a step fails: %t; the plan is, want %q:\n%s", failed, c.want, body)
			}
			_, comment := githubSteps(t)
			for _, known := range []string{"", "99\n100"} {
				out := githubComment(t, comment[0].Run, body, known)
				where := map[string]string{"": "POST repos/o/r/issues/7/comments", "99\n100": "PATCH repos/o/r/issues/comments/99"}
				if !strings.HasPrefix(out, where[known]+"\n") || !strings.Contains(out, c.want) {
					t.Errorf("with the comments %q it posts %s", known, out)
				}
			}
		})
		t.Run("gitlab "+c.name, func(t *testing.T) {
			t.Parallel()
			top := requests(t)
			pr := filepath.Join(top, "pr")
			if out, err := shell(t, pr, c.change); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			script, note := gitlabScripts(t)
			out, err := shell(t, pr, script[0], "CI=true", "CI_PROJECT_DIR="+pr, "BASE="+filepath.Join(top, "base"))
			if (err != nil) != c.fails {
				t.Errorf("%v:\n%s", err, out)
			}
			report, err := os.ReadFile(filepath.Join(pr, "code-quality.json"))
			if err != nil || !bytes.HasPrefix(report, []byte("[")) {
				t.Errorf("the report: %s, %v", report, err)
			}
			server := &gitlab{notes: []gitlabNote{}}
			at := httptest.NewServer(server)
			defer at.Close()
			for i, method := range []string{"POST", "PUT"} { // the second push finds the note of the first
				out, err := shell(t, pr, note[0], "CI_API_V4_URL="+at.URL, "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=7",
					"RECIPE_TOKEN=a-token", "no_proxy=127.0.0.1")
				if err != nil || len(server.methods) != i+1 || server.methods[i] != method || len(server.notes) != 2 ||
					!strings.Contains(server.notes[1].Body, c.want) {
					t.Errorf("%v, %v, %+v:\n%s", err, server.methods, server.notes, out)
				}
			}
		})
	}
}

// githubPlan runs the steps of the job plan, as far as those before them and their conditions let them run, and returns
// its output.
func githubPlan(t *testing.T, top string) (body string, failed bool) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "output")
	plan, _ := githubSteps(t)
	for _, step := range plan {
		if failed && step.If == "" {
			continue
		}
		_, err := shell(t, filepath.Join(top, step.Dir), step.Run, "GITHUB_ACTIONS=true", "CI=true",
			"GITHUB_WORKSPACE="+top, "GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+output+".md")
		failed = failed || err != nil
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
	if summary, err := os.ReadFile(output + ".md"); err != nil || !strings.HasPrefix(string(summary), body) {
		t.Errorf("the summary of the job is %s, %v", summary, err)
	}
	return body, failed
}

// githubComment runs the script that comments, with a gh that knows comments of these numbers, and returns what was
// posted where.
func githubComment(t *testing.T, script, body, known string) string {
	t.Helper()
	bin := t.TempDir()
	gh := "#!/bin/sh\nif [ \"$2\" = --paginate ]; then\n" +
		"  case $5 in *env.MARKER*) ;; *) exit 2;; esac\n" +
		"  [ \"$MARKER\" = \"$(head -n 1 plan.md)\" ] && printf '%s' \"$KNOWN\"\n  exit\nfi\n" +
		"[ \"$2 $3 $6 $7\" = '--silent --method --field body=@plan.md' ] || exit 2\necho \"$4 $5\"\ncat plan.md\n"
	if err := os.WriteFile(filepath.Join(bin, "gh"), []byte(gh), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := shell(t, t.TempDir(), script, "PATH="+bin+":"+os.Getenv("PATH"), "PULL_REQUEST=7", "GH_REPO=o/r",
		"PLAN="+body, "KNOWN="+known)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return out
}

// gitlab is the notes of one merge request: one with the same marker by somebody else, and what the job writes.
type gitlab struct {
	notes   []gitlabNote
	methods []string
}

type gitlabNote struct {
	ID     int    `json:"id"`
	Body   string `json:"body"`
	Author struct {
		ID int `json:"id"`
	} `json:"author"`
}

func (g *gitlab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const notes = "/projects/3/merge_requests/7/notes"
	var note gitlabNote
	_ = json.NewDecoder(r.Body).Decode(&note)
	switch {
	case r.Header.Get("PRIVATE-TOKEN") != "a-token":
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	case r.Method == http.MethodGet && r.URL.Path == "/user":
		_, _ = io.WriteString(w, `{"id": 5}`)
		return
	case r.Method == http.MethodGet && r.URL.Path == notes:
		_ = json.NewEncoder(w).Encode(g.notes)
		return
	case r.Method == http.MethodPost && r.URL.Path == notes:
		other := gitlabNote{ID: 1, Body: note.Body}
		note.ID, note.Author.ID = 2, 5
		g.notes = []gitlabNote{other, note}
	case r.Method == http.MethodPut && r.URL.Path == notes+"/2":
		note.ID, note.Author.ID = 2, 5
		g.notes[1] = note
	default:
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}
	g.methods = append(g.methods, r.Method)
	_, _ = io.WriteString(w, "{}")
}

func gitlabScripts(t *testing.T) (plan, note []string) {
	t.Helper()
	var pipeline map[string]struct{ Script []string }
	readExample(t, "gitlab.yml", &pipeline)
	plan, note = pipeline["plan"].Script, pipeline["note"].Script
	if len(plan) != 1 || len(note) != 1 {
		t.Fatalf("the file has other scripts than this test knows: %+v", pipeline)
	}
	return plan, note
}

// TestAHostilePullRequestRunsNothing gives the documented workflows a pull request that changes the recipe, its lock,
// its approvals, the policies and the tests, and adds a plugin, a Python file and settings: none of it runs, and no
// secret of the job is printed.
//
//docs:ci.md Recipes in CI
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
		"GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+output+".md",
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
	if refused < 4 { // check, test and plan of GitHub, and the one of GitLab
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
