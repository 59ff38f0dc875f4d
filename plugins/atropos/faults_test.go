package atropos

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// Faults of environments that raise no error and would go unnoticed without a check.

// handles remembers the processes that the block reported.
type handles struct {
	*host
	last atomic.Pointer[[]byte]
}

func (h *handles) SetHandle(data []byte) { h.last.Store(&data) }

func (h *handles) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	list := proc.Parse(*h.last.Load())
	if len(list) != 1 {
		t.Fatalf("%d processes, want 1", len(list))
	}
	if err := syscall.Kill(list[0].PID, s); err != nil {
		t.Fatal(err)
	}
}

// derived writes an environment that replaces collect_trajectories of the addition environment.
func derived(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "derived.py")
	text := "import sys\nsys.path.insert(0, " + quote(filepath.Join(repository(t), "recipes", "environments")) + ")\n" +
		"from addition import Addition, prompt\n\nclass Derived(Addition):\n    count = 0\n\n" +
		"    async def collect_trajectories(self, item):\n" + body + "\n\nif __name__ == '__main__':\n    Derived.cli()\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

// TestRolloutsWithoutAGroupAreExplained: first rollouts that send no request to inference (lengths that do not fit),
// then rollouts whose answers are all discarded (a minimum length).
//
//docs:troubleshooting.md Rollouts that make no request
func TestRolloutsWithoutAGroupAreExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"no request": {"        return None, []", "none of them asked inference for anything. Lengths that do not fit"},
		"every answer is too short": {`        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            await managed.completion(prompt=prompt(item), n=2, max_tokens=1, temperature=1.0)
        return None, []`, "the environment drops every answer without an error. A minimum length does that"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := newHost()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			req := request(t, w, func(c2 *Config) { c2.Script = derived(t, c.body) })
			go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
			h.await(t, "a warning with "+c.want, func() bool {
				for _, line := range h.logs {
					if strings.HasPrefix(line, "warn: ") && strings.Contains(line, c.want) {
						return true
					}
				}
				return false
			})
			cancel()
			<-ended
		})
	}
}

// TestADeadOrHungEnvironmentIsMissed: without a check, both leave a trainer that waits without an error. Its minimum of
// a batch would be waited for until the trajectory API counts it as silent.
//
//docs:troubleshooting.md A dead or hung environment goes unnoticed
func TestADeadOrHungEnvironmentIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal syscall.Signal
		want   string
	}{
		"killed": {syscall.SIGKILL, "was killed by signal 9 (SIGKILL)"},
		"hung":   {syscall.SIGSTOP, "has not polled the trajectory API for 8s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := &handles{host: newHost()}
			ended := make(chan error, 1)
			req := request(t, w, func(c *Config) { c.Silence = 8 * time.Second })
			go func() { ended <- (&Environment{}).Run(t.Context(), req, h) }()
			h.await(t, "the first group", func() bool { return h.metrics["env/groups"] > 0 })
			h.signal(t, c.signal)
			select {
			case err := <-ended:
				var e *sdk.Error
				if !errors.As(err, &e) || !strings.Contains(e.Summary, c.want) || e.Remedy == "" {
					t.Errorf("got %v, want an error with %q and a remedy", err, c.want)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.left == 0 {
					t.Error("the trajectory API still counts on its groups")
				}
			case <-time.After(60 * time.Second):
				t.Fatal("waited 60 s for the block to notice")
			}
		})
	}
}

// TestAnEnvironmentWhoseStepsAreDoneStays: by itself it would exit as soon as enough groups are queued, which looks
// like a crash while groups may yet be dropped as stale. It keeps polling, and ends without an error when it is
// stopped.
//
//docs:troubleshooting.md Steps counted when batches are formed: an environment leaves early, which looks like a …
func TestAnEnvironmentWhoseStepsAreDoneStays(t *testing.T) {
	t.Parallel()
	w, h := newWorld(t), newHost()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	req := request(t, w, nil)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "the first group", func() bool { return h.metrics["env/groups"] > 0 })
	w.mu.Lock()
	w.over, w.polls = true, 0
	w.mu.Unlock()
	h.await(t, "ten polls after the last step", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.polls >= 10
	})
	select {
	case err := <-ended:
		t.Fatalf("it left by itself: %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestEvaluationsBelongToOneVersion: numbers that were measured while the policy changed are not attributed to a
// version.
//
//docs:troubleshooting.md Evaluations labeled with the wrong weights
func TestEvaluationsBelongToOneVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step int64 // what each request for the version adds to it
		want string
	}{
		"it stays":   {0, ""},
		"it changes": {1, "so its numbers belong to neither"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var version atomic.Int64
			version.Store(5)
			control := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/recipe/v1/status" || r.Header.Get("Authorization") != "Bearer control" {
					http.NotFound(out, r)
					return
				}
				_ = json.NewEncoder(out).Encode(map[string]any{"version": version.Add(c.step)})
			}))
			t.Cleanup(control.Close)
			req := request(t, w, nil)
			values := maps.Clone(req.Config.Inference.Values.AsValueMap())
			values["control_url"], values["control_token"] = cty.StringVal(control.URL), cty.StringVal("control")
			req.Config.Inference.Values = cty.ObjectVal(values)
			r, err := prepare(req, newHost())
			if err != nil {
				t.Fatal(err)
			}
			found, at, err := r.evaluate(t.Context())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, version %d, %v; want an error with %q", found, at, err, c.want)
				}
				return
			}
			if err != nil || at != 5 || found["eval/held_out_accuracy"] < 0 {
				t.Errorf("got %v, version %d, %v; want numbers of version 5", found, at, err)
			}
		})
	}
}

// TestOwnEvaluationReportsBothVersions: during training it is not delayed, so both versions are
// reported.
//
//docs:troubleshooting.md Evaluations labeled with the wrong weights
func TestOwnEvaluationReportsBothVersions(t *testing.T) {
	t.Parallel()
	h := newHost()
	r := &running{host: h}
	// without a control endpoint the version is 0
	p := &process{running: r, team: newTeam(h, outputs.Environment{}, 1), evaluating: 3}
	_ = p.take(t.Context(), event{Event: "evaluation", Metrics: map[string]float64{"eval/accuracy": 0.5}})
	if h.metrics["eval/policy_version_first"] != 3 || h.metrics["eval/policy_version"] != 0 ||
		h.metrics["eval/accuracy"] != 0.5 || len(h.logs) != 1 {
		t.Errorf("metrics %v, log %q; want both versions and a warning", h.metrics, h.logs)
	}
	p.evaluating, h.logs = 0, nil
	_ = p.take(t.Context(), event{Event: "evaluation", Metrics: map[string]float64{"eval/accuracy": 0.5}})
	if len(h.logs) != 0 {
		t.Errorf("log %q after an evaluation under one version", h.logs)
	}
}

// Posts end a block when ten in a row were refused, and never while the trajectory API is away.
func TestRefusedPostsEndTheBlock(t *testing.T) {
	t.Parallel()
	r := &running{host: newHost()}
	p := &process{running: r, team: newTeam(r.host, outputs.Environment{}, 1)}
	posts := func(n int, e event) (err error) {
		for range n {
			err = errors.Join(err, p.take(t.Context(), e))
		}
		return err
	}
	refused, away := event{Event: "post-failed", Error: "HTTP 422"}, event{Event: "post-failed", Away: true}
	if err := posts(100, away); err != nil {
		t.Error("while the API is away:", err)
	}
	if err := posts(refusedPosts-1, refused); err != nil {
		t.Error("after nine:", err)
	}
	if err := errors.Join(posts(1, event{Event: "posted"}), posts(refusedPosts-1, refused)); err != nil {
		t.Error("nine after one that arrived:", err)
	}
	var e *sdk.Error
	if err := posts(1, refused); !errors.As(err, &e) || e.Final || !strings.Contains(err.Error(), "HTTP 422") {
		t.Errorf("after ten: %v, and final although a group has arrived: %v", err, e != nil && e.Final)
	}
	// Rollouts: some environments raise where an answer is of no use, so one group proves that groups can come.
	failed := event{Event: "rollout-failed", Rollouts: 64, InARow: 64, Own: 64, Error: "no score"}
	if err := p.take(t.Context(), event{Event: "rollout-failed", InARow: 64, Own: 3}); err != nil {
		t.Error("while inference was away:", err)
	}
	if err := p.take(t.Context(), failed); err == nil || !strings.Contains(err.Error(), "no score") {
		t.Errorf("64 rollouts and not one group: %v", err)
	}
	if err := errors.Join(p.take(t.Context(), event{Event: "group"}), p.take(t.Context(), failed)); err != nil {
		t.Error("after a group:", err)
	}
}

// The launcher tells a server that is away from a fault of the environment.
func TestTheLauncherKnowsServersThatAreAway(t *testing.T) {
	t.Parallel()
	code := `import asyncio, recipe_posts as p
class APIConnectionError(Exception): pass
class Mine(APIConnectionError): pass
class Retry(Exception): last_attempt = type("A", (), {"exception": staticmethod(lambda: ConnectionResetError())})
print([p.is_away(e) for e in (ConnectionRefusedError(), asyncio.TimeoutError(), Mine(), Retry(), FileNotFoundError(),
                              TypeError(), ValueError())])`
	cmd := exec.CommandContext(t.Context(), python(t), "-c", code)
	cmd.Dir = "launcher"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	got, err := cmd.CombinedOutput()
	if want := "[True, True, True, True, False, False, False]"; err != nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("away: %s, %v, expected %s", got, err, want)
	}
}

// The body of a refusal repeats what was posted: its message is what is reported, with whole sentences.
func TestTheLauncherReportsWholeMessages(t *testing.T) {
	t.Parallel()
	code := `import recipe_posts as p, json
detail = [{"input": [1] * 999, "loc": ["body", "masks"], "msg": "It is 1. Expected -100."}]
print(p.message(json.dumps({"detail": detail})))
print(p.message('{"detail": "busy"}'), p.message("<html>\n x"), p.message('{"detail": [7]}'))
long = p.message("A sentence ends. " * 200)
print(long[-41:], len(long))`
	cmd := exec.CommandContext(t.Context(), python(t), "-c", code)
	cmd.Dir = "launcher"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	got, err := cmd.CombinedOutput()
	want := `body.masks: It is 1. Expected -100.
busy <html> x {"detail": [7]}
A sentence ends. … (1411 more characters) 2013`
	if err != nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("%v, got:\n%s\nexpected:\n%s", err, got, want)
	}
}
