package scaffold_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// The policy that a live run trains answers, by its address and by the URL of its gateway, which wants a key; without
// the run, or with another key, the command says so.
func TestTheLivePolicyIsTriedAndEvaluated(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	folder := a.create(kind.Environment, "words", "python")
	const block = "environment.words.train"
	try := []string{"recipe", "env", "try", "words.hcl", block, "-n", "1", "--group-size", "2"}
	evaluate := []string{"recipe", "evaluate", block, "-r", "words.hcl"}
	a.refused(folder, "there is no run", evaluate...)

	a.run(folder, "recipe", "apply", "-y", "--detach", "--var", "steps=1000000", "words.hcl")
	defer func() { _, _ = a.try(folder, "recipe", "destroy", "-y", "-r", "words.hcl") }()
	awaitReady(t, folder, block)
	a.run(folder, append(evaluate, "--limit", "2")...)

	var tried struct{ Policy string }
	a.answer(&tried, folder, append(try, "--json")...)
	if tried.Policy != "inference.tiny.policy of the live run" {
		t.Errorf("the policy is %q, want that of the live run", tried.Policy)
	}
	var scores struct {
		Policy  string
		Version *int64 `json:"policy_version"`
		Tasks   int
	}
	a.answer(&scores, folder, append(evaluate, "--samples", "2", "--policy", "inference.tiny.policy", "--json")...)
	if scores.Policy != "inference.tiny.policy of the live run" || scores.Version == nil || scores.Tasks != 9 {
		t.Errorf("%+v, want 9 tasks answered by a version of the live run's policy", scores)
	}

	url, key := gateway(t, folder)
	a.environ = append(a.environ, "RIGHT_KEY="+key, "WRONG_KEY=not-"+key)
	byURL := append(try, "--policy", url, "--key-env")
	if out := a.run(folder, append(byURL, "RIGHT_KEY")...); !strings.Contains(out, "answered by "+url) ||
		strings.Contains(out, key) {
		t.Errorf("want answers of %s, and no key:\n%s", url, out)
	}
	a.run(folder, append(evaluate, "--samples", "1", "--limit", "2", "--policy", url, "--key-env", "RIGHT_KEY")...)
	a.refused(folder, "refuses the key (HTTP 401)", append(byURL, "WRONG_KEY")...)
	a.refused(folder, "refuses the key (HTTP 401)", append(byURL, "WRONG_KEY", "--model", "tiny")...)
	a.refused(folder, "requires a key (HTTP 401)", append(try, "--policy", url)...)

	a.run(folder, "recipe", "stop", "-r", "words.hcl")
	a.refused(folder, "cannot be reached", append(byURL, "RIGHT_KEY", "--model", "tiny")...)
	a.refused(folder, "is not running: its run is stopped", evaluate...)
	if out := a.run(folder, try...); !strings.Contains(out, "inference.tiny.policy no live run") {
		t.Errorf("it does not say that the policy is not that of a run:\n%s", out)
	}
}

// awaitReady waits until a block of the run is ready.
func awaitReady(t *testing.T, folder, address string) {
	t.Helper()
	block, err := addr.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		run, err := state.Read(state.DirOf(folder, "words"))
		if err == nil && run.Blocks[block] != nil && run.Blocks[block].Phase == "ready" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out after 2 minutes waiting for %s: %v", address, err)
		}
	}
}

// refused runs a command that is to fail with a text.
func (a *author) refused(folder, want string, words ...string) {
	a.t.Helper()
	if out, err := a.try(folder, words...); err == nil || !strings.Contains(out, want) {
		a.t.Errorf("%s: %v, want %q\n%s", strings.Join(words, " "), err, want, out)
	}
}

// gateway is the address of the run's policy, and the key that samples.
func gateway(t *testing.T, folder string) (url, key string) {
	t.Helper()
	policy, err := addr.Parse("inference.tiny.policy")
	if err != nil {
		t.Fatal(err)
	}
	dir := state.DirOf(folder, "words")
	run, err := state.Read(dir)
	if err == nil {
		key, err = dir.Token("data", policy, run.Blocks[policy].Renewals)
	}
	if err == nil {
		err = json.Unmarshal(run.Blocks[policy].Outputs["base_url"], &url)
	}
	if err != nil {
		t.Fatal(err)
	}
	return url, key
}
