package tiny

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAPI is a trajectory API that always has a batch.
type fakeAPI struct {
	server *httptest.Server

	mu         sync.Mutex
	rng        *rand.Rand
	spoil      func(g *trajectory.Group) // changes groups before they are delivered
	registered []trajectory.Registration
	acked      int
	version    int64
	forget     bool // reports once that no trainer has registered
	poison     int  // batches whose first group has a token id of 10^26
	broken     int  // requests for a batch that fail
}

func newAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{rng: rand.New(rand.NewPCG(1, 1))}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakeAPI) reference() *spec.Ref {
	r := plugintest.Ref("trajectories.builtin.default", kind.Trajectories, outputs.Trajectories{URL: f.server.URL,
		Token: "secret"})
	return &r
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch path := r.URL.Path; {
	case path == "/register":
		var reg trajectory.Registration
		_ = json.NewDecoder(r.Body).Decode(&reg)
		f.registered = append(f.registered, reg)
		reply(map[string]any{"uuid": 7})
	case path == "/batch" && f.broken > 0:
		f.broken--
		w.WriteHeader(http.StatusInternalServerError)
	case path == "/batch" && f.forget:
		f.forget = false
		reply(map[string]any{"status": "error", "message": "Trainer not registered. Call /register first."})
	case path == "/batch" && f.poison > 0:
		f.poison--
		_, _ = w.Write([]byte(`{"batch":[{"tokens":[[100000000000000000000000000]],"masks":[[-100]],"scores":[0]}`))
		if f.poison == 0 { // of the last one, other sequences can be trained on
			rest, _ := json.Marshal(f.group())
			_, _ = w.Write(append([]byte(","), rest...))
		}
		_, _ = w.Write([]byte(`],"id":"poisoned","lease_seconds":60}`))
	case path == "/batch":
		reply(trajectory.Batch{ID: "b", Groups: []trajectory.Group{f.group(), f.group()}})
	case strings.HasSuffix(path, "/ack"):
		f.acked++
		reply(map[string]any{})
	case path == "/policy_version":
		var v struct{ Version int64 }
		_ = json.NewDecoder(r.Body).Decode(&v)
		f.version = v.Version
		reply(map[string]any{})
	default:
		http.NotFound(w, r)
	}
}

// group is four completions of one prompt, one of which is right.
func (f *fakeAPI) group() trajectory.Group {
	id := 3
	g := trajectory.Group{EnvID: &id, PolicyVersion: trajectory.At(0)}
	for i := range 4 {
		answer := 20 + f.rng.IntN(10)
		g.Tokens, g.Masks = append(g.Tokens, []int{20, 21, 22, answer, 2}), append(g.Masks,
			[]int{-100, -100, -100, answer, 2})
		g.InferenceLogprobs = append(g.InferenceLogprobs, []float64{1, 1, 1, -2, -0.1})
		g.Scores = append(g.Scores, float64(min(1, i)))
	}
	if f.spoil != nil {
		f.spoil(&g)
	}
	return g
}

// trainerConfig is the configuration of a recipe that sets almost nothing.
func trainerBody(t *testing.T, api *fakeAPI, steps int64) TrainerConfig {
	t.Helper()
	def := Trainer()
	var c TrainerConfig
	if err := spec.Decode(def.Schema.ApplyDefaults(cty.EmptyObjectVal), def.Schema, &c); err != nil {
		t.Fatal(err)
	}
	c.Environments = []spec.Ref{plugintest.Ref("environment.fake.test", kind.Environment,
		outputs.Environment{Name: "test", GroupSize: 4})}
	c.Trajectories, c.Steps, c.BatchSize, c.SaveEvery = api.reference(), steps, 8, 2
	return c
}

func TestTrainerComplies(t *testing.T) {
	plugintest.Compliance(t, Trainer(), plugintest.Suite{
		Config: func(t *testing.T) any { return trainerBody(t, newAPI(t), 1000) },
		Bad: map[string]func(t *testing.T) any{
			"clip upside down": func(t *testing.T) any {
				c := trainerBody(t, newAPI(t), 10)
				c.Advantages = &AdvantagesConfig{Overrides: true, Fallback: "grpo", Scope: "sequence", Layout: "token",
					Single: "zero", Normalization: "none", Normalize: "override", Clip: []float64{1, -1}}
				return c
			},
			"dual clip below 1": func(t *testing.T) any {
				c := trainerBody(t, newAPI(t), 10)
				c.DualClip = 0.5
				return c
			},
		},
	})
}

// metricsOf are the trainer's metrics by step.
func metricsOf(b *plugintest.Block) map[int64]map[string]float64 {
	out := map[int64]map[string]float64{}
	for _, e := range b.Events() {
		if m := e.GetMetrics(); m != nil {
			out[m.GetStep()] = m.GetValues()
		}
	}
	return out
}

func TestTrainerTrainsAndKeepsItsNewestCheckpoints(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := trainerBody(t, api, 9)
	c.Keep = 2
	b := plugintest.Harness(t, Trainer())
	b.Start(c)
	b.WaitPhase(sdk.Completed)
	metrics := metricsOf(b)
	if len(metrics) != 9 || math.Abs(metrics[9]["reward"]-0.75) > 1e-9 || metrics[9]["grad_norm"] == 0 ||
		metrics[9]["sequences"] != 8 {
		t.Errorf("metrics of 9 steps: %v", metrics)
	}
	got := checkpoints(filepath.Join(b.RunDir, "checkpoints"))
	if len(got) != 2 || !strings.HasSuffix(got[0], "step-00000009.tiny") ||
		!strings.HasSuffix(got[1], "step-00000008.tiny") {
		t.Errorf("checkpoints left: %v", got)
	}
	saved, err := lm.Load(b.Output("checkpoint"))
	if err != nil || saved.Step != 9 || saved.Adam == nil {
		t.Fatalf("checkpoint %s: %v", b.Output("checkpoint"), err)
	}
	warm, err := Warm()
	if err != nil || slices.Equal(warm.Params.Flat(), saved.Params.Flat()) {
		t.Errorf("the weights are those that training started from (%v)", err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.acked != 9 || len(api.registered) != 1 || api.registered[0].BatchSize != 8 ||
		api.registered[0].NumSteps != 9 ||
		api.registered[0].CheckpointDir != filepath.Dir(got[0]) || api.registered[0].SaveCheckpointInterval != 2 {
		t.Errorf("%d batches acknowledged, registrations %+v", api.acked, api.registered)
	}
}

// A second attempt continues from the newest checkpoint that can be read.
func TestTrainerResumes(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	first := plugintest.Harness(t, Trainer())
	first.Start(trainerBody(t, api, 4))
	first.WaitPhase(sdk.Completed)
	folder := filepath.Join(first.RunDir, "checkpoints")
	if err := os.WriteFile(checkpointPath(folder, 6), []byte("cut short"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := plugintest.Harness(t, Trainer())
	second.Start(trainerBody(t, api, 7), func(r *pluginpb.StartRequest) { r.Resume, r.CheckpointDir = true, folder })
	second.WaitPhase(sdk.Completed)
	metrics := metricsOf(second)
	if len(metrics) != 3 || metrics[5] == nil || metrics[7] == nil {
		t.Errorf("the second attempt made the steps of %v, want 5 to 7", metrics)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.registered[1].StartingStep != 4 {
		t.Errorf("registered at step %d, want 4", api.registered[1].StartingStep)
	}
}

// Checkpoints lie at multiples of save_every, also after one between two of them: evaluations are due there.
func TestCheckpointsLieAtMultiples(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := trainerBody(t, api, 3)
	c.Keep = 10
	first := plugintest.Harness(t, Trainer())
	first.Start(c)
	first.WaitPhase(sdk.Completed)
	folder := filepath.Join(first.RunDir, "checkpoints")
	c.Steps = 7
	second := plugintest.Harness(t, Trainer())
	second.Start(c, func(r *pluginpb.StartRequest) { r.Resume, r.CheckpointDir = true, folder })
	second.WaitPhase(sdk.Completed)
	got := stepsOf(checkpoints(folder))
	slices.Sort(got)
	if want := []int64{2, 3, 4, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("checkpoints of steps %v, want %v", got, want)
	}
}

func TestTrainerStopsWithACheckpointAndTakesNewSettings(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := trainerBody(t, api, 1_000_000)
	c.SaveEvery = 0
	b := plugintest.Harness(t, Trainer())
	b.Start(c)
	b.Wait("step 3", func(e *pluginpb.Event) bool { return e.GetMetrics().GetStep() >= 3 })
	c.LearningRate = 7e-5
	if _, err := b.Client.Update(t.Context(), &pluginpb.UpdateRequest{Config: b.Request(c).GetConfig()}); err != nil {
		t.Fatal(err)
	}
	b.Wait("the new learning rate", func(e *pluginpb.Event) bool {
		m := e.GetMetrics()
		return m.GetStep() > 0 && math.Abs(m.GetValues()["learning_rate"]-7e-5*min(1, float64(m.GetStep())/20)) < 1e-12
	})
	if err := b.Stop(20e9); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
	got := checkpoints(filepath.Join(b.RunDir, "checkpoints"))
	if len(got) != 1 {
		t.Fatalf("checkpoints after a stop: %v", got)
	}
	if _, err := lm.Load(got[0]); err != nil {
		t.Error(err)
	}
}

// A stop while inference takes the weights of a step: the checkpoint has the step, so its metrics are reported, too.
func TestAStopReportsTheStepThatItSaves(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, newAPI(t), 10), func(r *pluginpb.StartRequest) { r.SyncedBy = []string{"sync.weights.test"} })
	b.Ready()
	client := weightclient.New(b.Output("control_url"), b.Output("control_token"))
	t.Cleanup(client.Close)
	if _, err := client.Attach(t.Context(), weightserver.Attach{Address: "sync.weights.test", Every: 1,
		Transport: "reload"}); err != nil {
		t.Fatal(err)
	}
	if p, err := client.Pending(t.Context(), 0, time.Minute); err != nil || p == nil || p.Step != 1 {
		t.Fatalf("pending: %+v, %v", p, err)
	}
	if err := b.Stop(20e9); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
	got := stepsOf(checkpoints(filepath.Join(b.RunDir, "checkpoints")))
	if m := metricsOf(b)[1]; !slices.Equal(got, []int64{1}) || m["tokens"] == 0 {
		t.Errorf("checkpoints of steps %v, metrics of step 1: %v", got, m)
	}
}

// Groups that cannot be trained on are left out, and errors and restarts of the API are tolerated.
func TestTrainerBearsBadGroupsAndAForgetfulAPI(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	n := 0
	api.spoil = func(g *trajectory.Group) {
		if n++; n%2 == 0 {
			g.Advantages = [][]float64{{1, 2}, {}, {}, {}}
		}
	}
	api.broken, api.forget = 2, true
	b := plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, api, 3))
	b.WaitPhase(sdk.Completed)
	if m := metricsOf(b)[3]; m["rejected_groups"] != 1 || m["groups"] != 1 {
		t.Errorf("metrics %v, want one group rejected and one trained on", m)
	}
	b.Wait("a warning that names the environment and the mistake", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), `"environment 3", sequence 0: advantages`)
	})
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.registered) != 2 {
		t.Errorf("%d registrations, want one more after the API forgot", len(api.registered))
	}
}

// A group with a token id of 10^26, which stores of other servers and of older versions may hold, once ended every
// attempt of the trainer: the batch came again after each restart.
func TestTrainerSetsAsideWhatItCannotRead(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	api.poison = 2
	folder := t.TempDir()
	b := plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, api, 3), func(r *pluginpb.StartRequest) { r.CheckpointDir = folder })
	b.WaitPhase(sdk.Completed)
	var reported, warned, ready bool
	var counted float64
	for _, e := range b.Events() {
		reported = reported || e.GetPhase().GetPhase() == string(sdk.Degraded) &&
			strings.Contains(e.GetPhase().GetMessage(),
				"1 groups of the last batch were set aside: reading group 0 of the batch")
		ready = ready || reported && e.GetPhase().GetPhase() == string(sdk.Ready)
		warned = warned || strings.Contains(e.GetLog().GetMessage(),
			"a group cannot be trained on and is left out (kept in ")
		counted += e.GetMetrics().GetValues()["rejected_groups/unreadable"]
	}
	if !reported || !ready || !warned || counted != 2 {
		t.Errorf("reported in the status %v, ready again %v, warned %v, counted %v; expected all, and 2", reported, ready,
			warned, counted)
	}
	kept, _ := filepath.Glob(filepath.Join(folder, "set-aside", "*.json"))
	if len(kept) != 2 {
		t.Fatalf("kept %v, expected two groups", kept)
	}
	text, err := os.ReadFile(kept[0])
	if err != nil || !strings.Contains(string(text), "100000000000000000000000000") ||
		!strings.Contains(string(text), `"batch":"poisoned"`) {
		t.Errorf("kept %s, %v", text, err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.acked < 4 {
		t.Errorf("%d batches were acknowledged, expected the poisoned ones too", api.acked)
	}
}

func TestTrainerRefusesModelsThatAreNotThere(t *testing.T) {
	t.Parallel()
	c := trainerBody(t, newAPI(t), 3)
	c.Model = "no/such/model.tiny"
	b := plugintest.Harness(t, Trainer())
	b.Start(c)
	if message := b.WaitPhase(sdk.Failed); !strings.Contains(message, "no/such/model.tiny") {
		t.Errorf("the failure does not name the model: %q", message)
	}
}

func TestConvertRefusesListsOfOtherLengths(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(g *trajectory.Group){
		"masks":              func(g *trajectory.Group) { g.Masks = g.Masks[:2] },
		"scores":             func(g *trajectory.Group) { g.Scores = nil },
		"advantages":         func(g *trajectory.Group) { g.Advantages = [][]float64{{1}} },
		"inference_logprobs": func(g *trajectory.Group) { g.InferenceLogprobs = g.InferenceLogprobs[1:] },
		"overrides":          func(g *trajectory.Group) { g.Overrides = []map[string]any{{}} },
	} {
		g := (&fakeAPI{rng: rand.New(rand.NewPCG(1, 1))}).group()
		spoil(&g)
		if _, err := convert(&g); err == nil || !strings.Contains(err.Error(), name+": want one entry a sequence (4)") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	g := (&fakeAPI{rng: rand.New(rand.NewPCG(1, 1))}).group()
	g.Overrides = []map[string]any{{"set_advantage_to_zero": true}, nil, nil, nil}
	got, err := convert(&g)
	if err != nil || !got.Sequences[0].ZeroAdvantage || got.Sequences[1].ZeroAdvantage {
		t.Errorf("overrides: %+v, %v", got.Sequences[:2], err)
	}
	if s := got.Sequences[1]; !slices.Equal(s.Trained, []bool{false, false, false, true, true}) ||
		s.LogProbs[3] != -2 || got.Name != "environment 3" {
		t.Errorf("converted to %+v of %s", s, got.Name)
	}
}
