package atropos

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// patience bounds each wait of a test. Importing atroposlib takes seconds on an idle machine and minutes on a busy one.
const patience = 4 * time.Minute

// python is the interpreter with atroposlib, made by scripts/venv.sh atropos. Without it these tests are skipped,
// because they test the real library.
func python(t *testing.T) string {
	t.Helper()
	if own := os.Getenv("ATROPOS_PYTHON"); own != "" {
		return own
	}
	root := repository(t)
	path := filepath.Join(root, ".cache", "venv-atropos", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		t.Skip("no .cache/venv-atropos; scripts/venv.sh atropos makes it")
	}
	return path
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// world is inference and trajectory API for an environment.
type world struct {
	*httptest.Server
	mu       sync.Mutex
	trainer  bool // has requested a batch: environments may register
	step     int
	groups   []map[string]any
	requests int
	slow     chan struct{}                     // not nil: posts are answered once it is closed
	reply    func(prompt string, i int) string // completion i of a prompt; nil: the digit i
	asked    []asked
	polls    int
	over     bool     // the trainer has done all of its steps
	names    []string // names of registered environments
	left     int      // how often an environment said goodbye
	posted   chan struct{}
	finish   string              // why completions ended; empty: length
	length   int                 // longest sequence that the trainer accepts; 0: 4096
	refuse   int                 // HTTP status of posts of groups; 0: they are accepted
	refusals int                 // posts that are refused; then they are accepted. 0: all, -1: every second one
	postings int                 // posts so far
	traces   map[string][]string // headers traceparent, by path

	chat      func(http.ResponseWriter, *http.Request) // answers chat completions; nil: not supported
	evaluated int                                      // chat completions answered
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{trainer: true, posted: make(chan struct{}, 1024), traces: map[string][]string{}}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/t/token")
	if sent := r.Header.Get(trace.Header); sent != "" {
		w.mu.Lock()
		w.traces[path] = append(w.traces[path], sent)
		w.mu.Unlock()
	}
	if path == "/health" {
		return
	}
	if path == "/v1/chat/completions" && w.chat != nil {
		w.chat(out, r)
		return
	}
	switch path {
	case "/generate":
		w.generate(out, r)
		return
	case "/chat/completions", "/v1/chat/completions", "/completions", "/v1/completions":
		w.complete(out, r)
		return
	}
	if path == r.URL.Path {
		http.Error(out, "no token", http.StatusForbidden)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(path, "/scored_data") {
		w.postings++
	}
	accepted := w.refusals > 0 && w.postings > w.refusals || w.refusals < 0 && w.postings%2 == 0
	if w.refuse != 0 && !accepted && strings.HasPrefix(path, "/scored_data") {
		http.Error(out, `{"detail": "the world refuses this group"}`, w.refuse)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	var answer any
	switch path {
	case "/register-env":
		answer = map[string]any{"status": "wait for trainer to start"}
		if w.trainer {
			name, _ := decode(r)["desired_name"].(string)
			w.names = append(w.names, name)
			answer = map[string]any{"status": "success", "env_id": 0, "wandb_name": "addition_0", "checkpoint_dir": "",
				"starting_step": 0, "checkpoint_interval": 0, "num_steps": 1000000}
		}
	case "/disconnect-env":
		w.left++
		answer = map[string]any{"status": "success"}
	case "/info":
		answer = map[string]any{"batch_size": 16, "max_token_len": cmp.Or(w.length, 4096)}
	case "/wandb_info":
		answer = map[string]any{"group": "sweep", "project": "sums"}
	case "/status-env":
		w.polls++
		if w.over {
			w.step = 1 << 30
		}
		answer = map[string]any{"current_step": w.step, "queue_size": 0, "unallocated_fraction": 1.0, "self_queue_size": 0,
			"max_group_size": 8, "env_weight": 1.0}
	case "/scored_data_list":
		w.groups = append(w.groups, decodeList(r)...)
		w.step = len(w.groups) / 2
		answer = map[string]any{"status": "received", "groups_processed": 1}
		w.posted <- struct{}{}
	case "/scored_data":
		slow := w.slow
		if slow != nil {
			w.mu.Unlock()
			w.posted <- struct{}{}
			<-slow
			w.mu.Lock()
		}
		w.groups = append(w.groups, decode(r))
		w.step = len(w.groups) / 2
		answer = map[string]any{"status": "received"}
		if slow == nil {
			w.posted <- struct{}{}
		}
	default:
		http.NotFound(out, r)
		return
	}
	_ = json.NewEncoder(out).Encode(answer)
}

// asked is one request for completions.
type asked struct {
	Prompt      string
	N           int     `json:"n"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
}

func decode(r *http.Request) (v map[string]any) {
	read(r, &v)
	return v
}

func decodeList(r *http.Request) (v []map[string]any) {
	read(r, &v)
	return v
}

func read(r *http.Request, v any) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return
		}
		body = z
	}
	_ = json.NewDecoder(body).Decode(v)
}

// generate answers half of the completions with 7 and half with 8, so that scores differ for 3+4 and are equal for most
// other sums.
func (w *world) generate(out http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer key" {
		http.Error(out, "no key", http.StatusUnauthorized)
		return
	}
	var q struct {
		asked
		Prompt struct {
			IDs []int `json:"prompt_token_ids"`
		} `json:"prompt"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	q.N = max(1, q.N)
	q.asked.Prompt = charactersOf(q.Prompt.IDs)
	w.mu.Lock()
	w.requests++
	w.asked = append(w.asked, q.asked)
	reply, finish := w.reply, cmp.Or(w.finish, "length")
	w.mu.Unlock()
	if reply == nil {
		// All digits occur, so that one answer of eight is right for most sums below ten.
		reply = func(_ string, i int) string { return itoa(i) }
	}
	logprobs, reasons, texts := []any{}, []any{}, []any{}
	for i := range q.N {
		text, tokens := reply(q.asked.Prompt, i), []any{}
		for _, id := range idsOf(text) {
			tokens = append(tokens, []any{map[string]any{itoa(id): -0.5}})
		}
		logprobs = append(logprobs, tokens)
		reasons = append(reasons, map[string]any{"type": finish})
		texts = append(texts, text)
	}
	out.Header().Set("Content-Type", "application/json")
	out.Header().Set("X-Recipe-Policy-Version", "3")
	out.Header().Set("X-Recipe-Policy-Version-Max", "4")
	_ = json.NewEncoder(out).Encode(map[string]any{"text": texts, "logprobs": logprobs, "finish_reasons": reasons})
}

// complete answers a prompt or a conversation in the format of OpenAI's API, without token ids.
func (w *world) complete(out http.ResponseWriter, r *http.Request) {
	var q struct {
		asked
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	for _, m := range q.Messages {
		q.Prompt += m.Content + "\n"
	}
	w.mu.Lock()
	w.requests++
	first, reply := w.requests, w.reply
	w.asked = append(w.asked, q.asked)
	w.mu.Unlock()
	if reply == nil {
		reply = func(_ string, i int) string { return itoa(i) }
	}
	choices := []any{}
	for i := range max(1, q.N) {
		choices = append(choices, map[string]any{"index": i, "finish_reason": "stop", "text": reply(q.Prompt, first+i),
			"message": map[string]any{"role": "assistant", "content": reply(q.Prompt, first+i)}})
	}
	out.Header().Set("Content-Type", "application/json")
	out.Header().Set("X-Recipe-Policy-Version", "3")
	out.Header().Set("X-Recipe-Policy-Version-Max", "4")
	_ = json.NewEncoder(out).Encode(map[string]any{"id": "x", "object": "completion", "created": 1, "model": "policy",
		"choices": choices})
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

// host records what the plugin reports.
type host struct {
	mu      sync.Mutex
	ready   int
	phases  []string
	logs    []string
	metrics map[string]float64
	samples []sdk.Sample
	spans   []trace.Span
	changed chan struct{}
}

func newHost() *host { return &host{metrics: map[string]float64{}, changed: make(chan struct{}, 1)} }

func (h *host) note(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *host) Ready(any)      { h.note(func() { h.ready++ }) }
func (h *host) SetOutputs(any) {}
func (h *host) Phase(p sdk.Phase, text string) {
	h.note(func() { h.phases = append(h.phases, string(p)+": "+text) })
}
func (h *host) Progress(int64, int64, string) {}
func (h *host) Log(level, text string)        { h.note(func() { h.logs = append(h.logs, level+": "+text) }) }
func (h *host) Checkpoint(sdk.CheckpointInfo) {}
func (h *host) Sample(s sdk.Sample)           { h.note(func() { h.samples = append(h.samples, s) }) }
func (h *host) Span(s trace.Span)             { h.note(func() { h.spans = append(h.spans, s) }) }
func (h *host) Listening(string)              {}

func (h *host) SetHandle([]byte)                 {}
func (h *host) Weights(sdk.WeightsInfo)          {}
func (h *host) Begin(sdk.Activity) *sdk.Ongoing  { return nil }
func (h *host) Activities(func() []sdk.Activity) {}
func (h *host) Grace() time.Duration             { return 10 * time.Second }
func (h *host) Metrics(_ int64, m map[string]float64) {
	h.note(func() {
		for k, v := range m {
			h.metrics[k] = v
		}
	})
}

func (h *host) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		done := ok()
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-h.changed:
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatalf("waited too long for %s; phases %q, log %q, metrics %v, %d samples", what, h.phases, h.logs,
				h.metrics, len(h.samples))
		}
	}
}

// request is the block of recipes/environments/addition.py.
func request(t *testing.T, w *world, change func(*Config)) sdk.Request[Config] {
	t.Helper()
	inference, trajectories := refs(w.URL, w.URL)
	c := Config{
		Script: filepath.Join(repository(t), "recipes", "environments", "addition.py"), Inference: inference,
		Trajectories: trajectories,
		GroupSize:    8, TotalSteps: -1, Weight: 1, ServerType: "vllm", RequestTimeout: time.Minute, Replicas: 1,
		StartTimeout: patience, Silence: time.Minute,
		Tokenizer: filepath.Join(repository(t), "plugins", "atropos", "testdata", "tokenizer"),
	}
	if change != nil {
		change(&c)
	}
	return sdk.Request[Config]{Config: c, Block: sdk.Block{
		Address: "environment.atropos.addition", Dir: t.TempDir(), RecipeDir: t.TempDir(),
		Runtime:     sdk.Runtime{Python: python(t)},
		Environment: map[string]string{"HF_HUB_OFFLINE": "1"},
	}}
}

// TestRealEnvironment runs atroposlib itself: it waits for the trainer, registers, rolls out, posts, is evaluated
// meanwhile, and ends without losing a group in flight.
//
//docs:troubleshooting.md Nothing says which weights sampled a group
func TestRealEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer = false
	req := request(t, w, func(c *Config) { c.SaveGroups = true })
	env, h := &Environment{}, newHost()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- env.Run(ctx, req, h) }()
	defer cancel()

	h.await(t, "the block to be ready before the trainer is", func() bool { return h.ready == 1 })
	w.mu.Lock()
	w.trainer = true
	w.mu.Unlock()
	var metrics map[string]float64 // as they were at one moment: the environment continues
	var samples []sdk.Sample
	h.await(t, "metrics of groups", func() bool {
		metrics, samples = maps.Clone(h.metrics), slices.Clone(h.samples)
		return h.metrics["env/groups_sent"] > 0 && h.metrics["train/percent_correct"] > 0 && len(h.samples) > 0
	})
	if metrics["env/groups"] < metrics["env/groups_sent"]+metrics["env/groups_same_scores"] {
		t.Errorf("metrics %v: all groups must be counted, those of equal scores too", metrics)
	}
	if n := metrics["env/completion_length"]; n != 1 {
		t.Errorf("completions of one token have the mean length %v", n)
	}
	if r := metrics["env/reward_all_groups"]; r < 0 || r > 1 {
		t.Errorf("the mean reward of all groups is %v", r)
	}
	if s := samples[0]; !strings.HasPrefix(s.Prompt, "What is ") || len(s.Completion) != 1 ||
		(s.Score != 0 && s.Score != 1) {
		t.Errorf("sample %+v; want the prompt, one digit and its score", s)
	}
	found, _, err := env.Evaluate(ctx, 0)
	if err != nil {
		t.Fatalf("Evaluate: %v", err)
	}
	if v, ok := found["eval/held_out_accuracy"]; !ok || v < 0 || v > 1 {
		t.Errorf("evaluation %v, want eval/held_out_accuracy", found)
	}

	w.mu.Lock()
	w.slow = make(chan struct{})
	before := len(w.groups)
	for len(w.posted) > 0 {
		<-w.posted
	}
	w.mu.Unlock()
	select {
	case <-w.posted:
	case <-time.After(60 * time.Second):
		t.Fatal("waited 60 s for a group on its way")
	}
	cancel()
	time.AfterFunc(time.Second, func() { close(w.slow) }) // the environment has been asked to end by then
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("waited 60 s for the environment to end")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.groups) <= before {
		t.Error("the group that was being sent when the environment was asked to end is lost")
	}
	g := w.groups[0]
	if len(g["tokens"].([]any)) != 8 || g["inference_logprobs"] == nil || g["env_id"] != 0.0 {
		t.Errorf("group %v", g)
	}
	if v, ok := g["policy_version"].([]any); !ok || len(v) != 2 || v[0] != 3.0 || v[1] != 4.0 {
		t.Errorf("policy_version %v, want [3 4], the versions that the gateway stamped on the answers", g["policy_version"])
	}
}

// TestRealEnvironmentLogsToTheGroupOfTheTracker checks that an environment with wandb = true lands in the project and
// the group that a trainer has registered, in the mode of the tracker.
func TestRealEnvironmentLogsToTheGroupOfTheTracker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := request(t, w, func(c *Config) { c.Wandb = true })
	dir := t.TempDir()
	req.Environment = map[string]string{"WANDB_MODE": "offline", "WANDB_DIR": dir}
	h := newHost()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "metrics of groups", func() bool { return h.metrics["env/groups_sent"] > 0 })
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the environment did not end")
	}
	files, err := filepath.Glob(filepath.Join(dir, "wandb", "offline-run-*", "*.wandb"))
	if err != nil || len(files) != 1 {
		t.Fatalf("offline files of W&B: %v, %v", files, err)
	}
	reader := filepath.Join(repository(t), "engine", "tracking", "testdata", "read_wandb.py")
	out, err := exec.CommandContext(t.Context(), python(t), reader, dir).Output()
	if err != nil {
		t.Fatalf("read W&B's files: %v", err)
	}
	var got struct {
		Runs []struct{ Project, Group string }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 1 || got.Runs[0].Project != "sums" || got.Runs[0].Group != "sweep" {
		t.Errorf("the environment's runs are %+v", got.Runs)
	}
}

// TestRealEnvironmentFailures checks the messages for wrong settings.
//
//docs:troubleshooting.md Settings that an environment ignores: a base_url, a misspelled name
func TestRealEnvironmentFailures(t *testing.T) {
	t.Parallel()
	script := func(text string) func(*Config) {
		return func(c *Config) {
			c.Script = filepath.Join(t.TempDir(), "environment.py")
			if err := os.WriteFile(c.Script, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"unknown setting": {func(c *Config) { c.Config = map[string]any{"max_new_token": 3} },
			"max_new_token (did you mean max_new_tokens?)"},
		"bad value": {func(c *Config) { c.Config = map[string]any{"temperature": "hot"} },
			"value that the environment's class refuses"},
		"too large group": {func(c *Config) { c.GroupSize = 32 }, "larger than the trainer's batch_size"},
		"no tokenizer":    {func(c *Config) { c.Tokenizer = "/no/such/tokenizer" }, "tokenizer cannot be loaded"},
		"no environment":  {script("print('hello')\n"), "without starting an environment"},
		"missing package": {script("import a_package_that_is_not_there\n"), "package that is not installed"},
		"no script":       {func(c *Config) { c.Script = "none.py" }, "script cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			// Not in parallel: each imports transformers, and there are few cores.
			w := newWorld(t)
			err := (&Environment{}).Run(t.Context(), request(t, w, c.change), newHost())
			var e *sdk.Error
			if !errors.As(err, &e) || !strings.Contains(e.Summary, c.want) || e.Remedy == "" {
				t.Fatalf("got %v (%+v)\nwant a summary with %q and a remedy", err, e, c.want)
			}
		})
	}
}
