package scaffold_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// An environment of the example's plugin is tried and evaluated without a trainer, by three kinds of policies.
func TestEnvironmentsWithoutATrainer(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	folder := a.create(kind.Environment, "words", "python") // nothing to build
	var tried struct {
		Policy string
		Groups []struct {
			Completions []struct {
				Score, Advantage float64
				Tokens           int
				Messages         []struct{ Role, Content string }
			}
		}
	}
	a.answer(&tried, folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "2", "--group-size",
		"4", "--json")
	if len(tried.Groups) != 2 || tried.Policy != "inference.tiny.policy" {
		t.Fatalf("%d groups of %s, want 2 of inference.tiny.policy", len(tried.Groups), tried.Policy)
	}
	for _, g := range tried.Groups {
		if len(g.Completions) != 4 {
			t.Fatalf("a group of %d completions, want 4", len(g.Completions))
		}
		sum := 0.0
		for _, c := range g.Completions {
			sum += c.Advantage
			if len(c.Messages) != 2 || c.Messages[1].Role != "assistant" || c.Tokens == 0 {
				t.Errorf("completion %+v", c)
			}
		}
		if sum > 1e-6 || sum < -1e-6 {
			t.Errorf("the advantages of a group add up to %v, want 0", sum)
		}
	}
	a.evaluates(folder)
	a.triesByURL(folder)
	for args, want := range map[string]string{
		"env try words.hcl environment.words.other":                                 "it has environment.words.train",
		"env try words.hcl inference.tiny.policy":                                   "expected an environment",
		"env try words.hcl environment.words.train -n 0":                            "-n must be",
		"env try words.hcl environment.words.train --policy x":                      "expected tiny, the address",
		"env try words.hcl environment.words.train --policy http://127.0.0.1:1":     "connection refused",
		"env try words.hcl environment.words.train --policy http://x --key-env NOT": "this variable is not set",
		"evaluate environment.words.train --k 3":                                    "--k needs --samples",
		"evaluate environment.words.train --samples 2 --k 3":                        "pass@k needs 1 to 2",
	} {
		if out, err := a.try(folder, append([]string{"recipe"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("recipe %s: %v, want %q\n%s", args, err, want, out)
		}
	}
}

// evaluates checks that pass@k is estimated and that what is missing is continued.
func (a *author) evaluates(folder string) {
	a.t.Helper()
	evaluate := func(more ...string) (report struct {
		Tasks  int
		PassAt []struct {
			K               int
			Mean, Low, High float64
		} `json:"pass_at"`
		Results []struct {
			Task   int
			Scores []float64
		}
	}) {
		a.t.Helper()
		a.answer(&report, folder, append([]string{"recipe", "evaluate", "environment.words.train", "-r", "words.hcl",
			"--samples", "4", "--pass", "0.5", "--out", "scores.jsonl", "--json"}, more...)...)
		return report
	}
	part := evaluate("--limit", "3")
	if part.Tasks != 3 || len(part.Results) != 3 {
		a.t.Fatalf("%d tasks, want 3", part.Tasks)
	}
	whole := evaluate()
	if whole.Tasks != 9 || len(whole.PassAt) != 2 || whole.PassAt[1].K != 4 {
		a.t.Fatalf("%+v, want 9 tasks and pass@1, pass@4", whole)
	}
	for _, p := range whole.PassAt {
		if !(0 <= p.Low && p.Low <= p.Mean && p.Mean <= p.High && p.High <= 1) || p.Low == p.High {
			a.t.Errorf("pass@%d: %+v", p.K, p)
		}
	}
	for i, r := range part.Results { // kept, not sampled again
		if fmt.Sprint(whole.Results[i].Scores) != fmt.Sprint(r.Scores) {
			a.t.Errorf("task %d: %v, and %v before", r.Task, whole.Results[i].Scores, r.Scores)
		}
	}
}

// triesByURL has a server answer that knows no token ids, refuses what it does not know, and gives one completion
// whatever n says, as some services do.
func (a *author) triesByURL(folder string) {
	a.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		refuse := func(text string) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
		}
		switch {
		case r.Header.Get("Authorization") != "Bearer secret-key":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"wise"}]}`))
		case json.NewDecoder(r.Body).Decode(&q) != nil || r.URL.Path != "/v1/chat/completions" || q["model"] != "wise":
			refuse("unexpected request")
		case q["return_token_ids"] != nil:
			refuse("unknown parameter return_token_ids")
		case q["max_tokens"] != nil:
			refuse("use max_completion_tokens instead")
		default:
			_, _ = w.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"21"},"finish_reason":"stop"}]}`))
		}
	}))
	defer server.Close()
	a.environ = append(a.environ, "WISE_KEY=secret-key")
	out := a.run(folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "1", "--group-size", "3",
		"--policy", server.URL, "--key-env", "WISE_KEY")
	if !strings.Contains(out, "  21  ×3\n") || !strings.Contains(out, "(wise)") || strings.Contains(out, "secret-key") {
		a.t.Errorf("want three answers of wise, and no key:\n%s", out)
	}
	// The held-out tasks are 19, 29, …: only 12 reversed would be 21.
	out = a.run(folder, "recipe", "evaluate", "environment.words.train", "-r", "words.hcl", "--samples", "2", "--policy",
		server.URL, "--key-env", "WISE_KEY")
	if !strings.Contains(out, "pass@1  0.000") || !strings.Contains(out, "9 tasks, 2 completions each") {
		a.t.Errorf("it says\n%s", out)
	}
	if out, err := a.try(folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "--policy",
		server.URL); err == nil || !strings.Contains(out, "HTTP 401") || !strings.Contains(out, "--key-env") {
		a.t.Errorf("without the key: %v\n%s", err, out)
	}
	a.triesExternal(folder, server.URL)
}

const judged = `
from dataclasses import dataclass
from recipe_sdk import Environment, Reference, Task

@dataclass
class Settings:
    judge: Reference

class Judged(Environment):
    "It gives 1 where its judge is the one of the recipe."
    settings: Settings
    def next(self): return Task(messages=[{"role": "user", "content": "say 21"}])
    def score(self, task, completion):
        judge = self.settings.judge
        return float(judge.base_url == "http://judge.example.com/v1" and judge.api_key == "judges-key")
`

// triesExternal names the server in the recipe, as that of the policy or of a judge, or with a URL that is secret.
func (a *author) triesExternal(folder, url string) {
	a.t.Helper()
	recipe := fmt.Sprintf(`
recipe {
  required_plugins { judged = { source = "./judged.py" } }
}
variable "url" {
  default   = %q
  sensitive = true
}
inference "tiny" "policy" {
  external {
    endpoint = %q
    api_key  = "secret-key"
  }
}
inference "tiny" "hidden" {
  external {
    endpoint = var.url
    api_key  = "secret-key"
  }
}
inference "tiny" "judge" {
  external {
    endpoint = "http://judge.example.com"
    api_key  = "judges-key"
    model    = "strict"
  }
}
environment "judged" "train" {
  inference  = inference.tiny.policy
  judge      = inference.tiny.judge
  group_size = 2
}
`, url, url)
	for name, text := range map[string]string{"judged.py": judged, "judged.hcl": recipe} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	for policy, want := range map[string]string{"inference.tiny.policy": url + " (wise)",
		"inference.tiny.hidden": "inference.tiny.hidden"} {
		out := a.run(folder, "recipe", "env", "try", "judged.hcl", "environment.judged.train", "-n", "1", "--policy", policy)
		if !strings.Contains(out, want) || !strings.Contains(out, "21  ×2") || !strings.Contains(out, "mean score 1\n") ||
			strings.Contains(out, "-key") || policy == "inference.tiny.hidden" && strings.Contains(out, url) {
			a.t.Errorf("with the policy %s it says\n%s", policy, out)
		}
	}
}
