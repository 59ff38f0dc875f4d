package inference_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

type serverConfig struct {
	Engines []string `recipe:"engines" required:"true" doc:"Addresses of the engines."`
}

// serverOutputs has an output besides those of the kind.
type serverOutputs struct {
	outputs.Inference
	Transports []string `recipe:"transports" doc:"How weights can move."`
}

// server is an inference plugin and its Engine, both controlled by the test.
type server struct {
	*inference.Local // answers nothing; it only runs until it is stopped
	started          chan struct{}
	updates          chan sdk.Weights
	panics           bool
	loading          func() // called within Load, if set

	mu       sync.Mutex
	host     inference.Host
	replicas []inference.Replica
}

func (s *server) Start(_ context.Context, req sdk.Request[serverConfig], host inference.Host) (inference.Engine,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host = host
	for _, url := range req.Config.Engines {
		// The model that a recipe names is version 0; with a policy the version of these engines is unknown.
		r := inference.Replica{ID: url, URL: url}
		if req.Policy.Version > 0 {
			r.Version = inference.UnknownVersion
		}
		s.replicas = append(s.replicas, r)
	}
	var err error
	s.Local, err = inference.ServeLocal(http.NotFoundHandler())
	close(s.started)
	return s, err
}

// say changes the replicas, as engines that come and go do.
func (s *server) say(replicas ...inference.Replica) {
	s.mu.Lock()
	s.replicas = replicas
	host := s.host
	s.mu.Unlock()
	host.Changed()
}

// phase reports a phase.
func (s *server) phase(p sdk.Phase, text string) {
	<-s.started
	s.host.Phase(p, text)
}

func (s *server) Replicas() []inference.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replicas
}

func (s *server) Outputs() any {
	return serverOutputs{Inference: outputs.Inference{Model: "m", MaxModelLen: 10}, Transports: []string{"reload", "lora"}}
}

func (s *server) Load(_ context.Context, w sdk.Weights) error {
	if s.panics {
		panic("no such tensor")
	}
	if s.loading != nil {
		s.loading()
	}
	s.updates <- w
	return nil
}

func (s *server) Logprobs(_ context.Context, _ inference.Replica, tokens []int) ([]float64, error) {
	return make([]float64, len(tokens)-1), nil
}

func newServer() *server {
	return &server{started: make(chan struct{}), updates: make(chan sdk.Weights, 16)}
}

func (s *server) definition() *sdk.Definition {
	return inference.New("test", "Inference for tests.", func() inference.Plugin[serverConfig] { return s },
		sdk.WithOutputs(serverOutputs{}), sdk.WithVersion("2.1.0"), sdk.WithDoc("More about it."))
}

func engine(t *testing.T) string {
	t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"choices":[]}`))
	}))
	t.Cleanup(e.Close)
	return e.URL
}

// replicas waits until the gateway has the expected replicas, of which so many are admitted.
func replicas(t *testing.T, b *plugintest.Block, what string, fits func(gateway.Status) bool) {
	t.Helper()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	until(t, what, func() bool {
		s, err := g.Status(t.Context())
		return err == nil && fits(s)
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(plugintest.Deadline); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, plugintest.Deadline)
		}
	}
}

// admitsAnother adds a replica of version 0. Replicas are admitted in order, so once it is admitted, the gateway has
// decided about the others.
func admitsAnother(t *testing.T, b *plugintest.Block, s *server, check func(gateway.Status)) {
	t.Helper()
	another := engine(t)
	s.say(append(slices.Clone(s.Replicas()), inference.Replica{ID: another, URL: another})...)
	replicas(t, b, "admission of the other replica", func(status gateway.Status) bool {
		i := slices.IndexFunc(status.Replicas, func(r gateway.ReplicaStatus) bool { return r.ID == another })
		if i < 0 || !status.Replicas[i].Ready {
			return false
		}
		check(status)
		return true
	})
}

func through(s gateway.Status) (n int) {
	for _, r := range s.Replicas {
		if r.Ready {
			n++
		}
	}
	return n
}

func TestOutputsOfAnInferenceBlock(t *testing.T) {
	t.Parallel()
	s := newServer()
	def := s.definition()
	if def.Version != "2.1.0" || def.Schema.Doc != "More about it." {
		t.Errorf("version %q, doc %q", def.Version, def.Schema.Doc)
	}
	b := plugintest.Harness(t, def)
	b.Start(serverConfig{Engines: []string{engine(t)}})
	out := b.Ready()
	listen := b.Status().GetListen()
	for name, want := range map[string]cty.Value{
		"base_url":     cty.StringVal("http://" + listen + "/v1"),
		"generate_url": cty.StringVal("http://" + listen + "/generate"),
		"control_url":  cty.StringVal("http://" + listen), "api_key": cty.StringVal("test-token"),
		"control_token": cty.StringVal("test-control-token"),
		"model":         cty.StringVal("m"), "transports": cty.ListVal([]cty.Value{cty.StringVal("reload"),
			cty.StringVal("lora")}),
	} {
		if got := out.GetAttr(name); got.Equals(want).False() {
			t.Errorf("output %s is %#v, want %#v", name, got, want)
		}
	}
}

// Several replicas are one call of the plugin, which loads into all of them.
func TestOneUpdateForAllReplicas(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t), engine(t), engine(t)}})
	b.Ready()
	replicas(t, b, "three replicas that serve", func(s gateway.Status) bool { return through(s) == 3 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	w := sdk.Weights{Version: 1, Path: "/w", Format: "hf", Transport: "reload", Precision: "bfloat16"}
	u := gateway.WeightUpdate{Weights: w}
	if _, err := g.UpdateWeights(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got := <-s.updates; got != w {
		t.Errorf("the plugin got %+v, want %+v", got, w)
	}
	replicas(t, b, "three replicas at version 1", func(s gateway.Status) bool { return through(s) == 3 && s.Version == 1 })
}

// A replica appears during an update, which reaches it as well: the version that the engine reported before the update
// is out of date when the replica is admitted, and loading the weights again would close it needlessly.
func TestAReplicaIsAdmittedAtTheVersionThatItServesNow(t *testing.T) {
	t.Parallel()
	s := newServer()
	first, second := engine(t), engine(t)
	loading, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.loading = func() {
		once.Do(func() { close(loading); <-release })
	}
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{first}})
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	updated := make(chan error, 1)
	go func() {
		_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: sdk.Weights{Version: 1, Path: "/w"}})
		updated <- err
	}()
	<-loading
	s.say(inference.Replica{ID: first, URL: first}, inference.Replica{ID: second, URL: second})
	replicas(t, b, "two replicas", func(s gateway.Status) bool { return len(s.Replicas) == 2 })
	s.mu.Lock()
	s.replicas = []inference.Replica{{ID: first, URL: first, Version: 1}, {ID: second, URL: second, Version: 1}}
	s.mu.Unlock()
	close(release)
	if err := <-updated; err != nil {
		t.Fatal(err)
	}
	replicas(t, b, "two replicas at version 1", func(s gateway.Status) bool { return through(s) == 2 && s.Version == 1 })
	if n := len(s.updates); n != 1 {
		t.Errorf("%d loads, want that of the update alone", n)
	}
}

func TestARestartedEngineIsClosedUntilItHasWeights(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := engine(t)
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{first}})
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	if _, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: sdk.Weights{Version: 1,
		Path: "/w"}}); err != nil {
		t.Fatal(err)
	}
	<-s.updates
	// The engine dies and is restarted at the same address, with its base model: the plugin reports it in this order.
	s.say()
	replicas(t, b, "gateway without replicas", func(s gateway.Status) bool { return len(s.Replicas) == 0 })
	s.say(inference.Replica{ID: first, URL: first, Version: inference.UnknownVersion})
	admitsAnother(t, b, s, func(status gateway.Status) {
		if r := status.Replicas[0]; r.Ready || status.Version != 1 {
			t.Errorf("the gateway is at version %d with %+v; want version 1 with this replica closed", status.Version, r)
		}
	})
	if w := <-s.updates; w.Version != 1 {
		t.Errorf("the other replica was brought %+v", w)
	}
	// When its version is known to be 0, the gateway loads the last update by itself.
	s.say(inference.Replica{ID: first, URL: first})
	if w := <-s.updates; w.Version != 1 || w.Path != "/w" {
		t.Errorf("it was brought %+v", w)
	}
	replicas(t, b, "replica at version 1", func(s gateway.Status) bool { return through(s) == 1 })
}

func TestAnEngineThatLoadedThePolicyServesAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	at := engine(t)
	b.Start(serverConfig{Engines: []string{at}}, func(r *pluginpb.StartRequest) {
		r.Policy = &pluginpb.Policy{Version: 7, Weights: "/w"}
	})
	b.Ready()
	replicas(t, b, "closed replica", func(s gateway.Status) bool { return s.Version == 7 && through(s) == 0 })
	s.say(inference.Replica{ID: at, URL: at, Version: 7})
	replicas(t, b, "replica at version 7", func(s gateway.Status) bool { return through(s) == 1 })
	select {
	case w := <-s.updates:
		t.Errorf("it was made to load %+v although it had", w)
	default:
	}
}

// An engine that starts with the recipe's model gets the run's weights before it is admitted: the SDK does that.
func TestANewAttemptGetsTheWeightsOfThePolicy(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	at := engine(t)
	b.Start(serverConfig{Engines: []string{at}}, func(r *pluginpb.StartRequest) {
		r.Policy = &pluginpb.Policy{Version: 7, Weights: "/w", Format: "hf"}
	})
	b.Ready()
	s.say(inference.Replica{ID: at, URL: at}) // the base model
	if got, want := <-s.updates, (sdk.Weights{Version: 7, Path: "/w", Format: "hf", Transport: "reload"}); got != want {
		t.Errorf("it was asked to load %+v, want %+v", got, want)
	}
	replicas(t, b, "replica at version 7", func(s gateway.Status) bool { return through(s) == 1 && s.Version == 7 })
}

// Weights that cannot be loaded end a block that no sync block brings others: its clients would wait for nothing.
func TestWeightsThatCannotBeLoadedEndTheBlock(t *testing.T) {
	t.Parallel()
	start := func(syncedBy ...string) *plugintest.Block {
		s := newServer()
		s.panics = true
		b := plugintest.Harness(t, s.definition())
		at := engine(t)
		b.Start(serverConfig{Engines: []string{at}}, func(r *pluginpb.StartRequest) {
			r.Policy, r.SyncedBy = &pluginpb.Policy{Version: 7, Weights: "/w", Format: "hf"}, syncedBy
		})
		b.Ready()
		s.say(inference.Replica{ID: at, URL: at}) // the base model
		return b
	}
	b := start()
	if why := b.WaitPhase(sdk.Failed); !strings.Contains(why, "could not be loaded") ||
		!strings.Contains(why, "no such tensor") {
		t.Errorf("it failed with %q", why)
	}
	b = start("sync.weights.policy")
	b.Wait("warning", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), "policy version 7")
	})
	if p := b.Status().GetPhase(); p != "ready" {
		t.Errorf("with a sync block it is %s", p)
	}
}

func TestAnUpdateThatPanicsIsAnErrorOfThatUpdate(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.panics = true
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}})
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: sdk.Weights{Version: 1, Path: "/w"}})
	if err == nil || !strings.Contains(err.Error(), "no such tensor") {
		t.Errorf("update: %v", err)
	}
	if p := b.Status().GetPhase(); p != "ready" {
		t.Errorf("the block is %s", p)
	}
}

// Once the gateway listens, dependents may start: an engine that restarts makes the block degraded, and not "not ready
// yet".
func TestAnEngineThatStartsAgainKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}})
	b.Ready()
	for _, phase := range []sdk.Phase{sdk.Starting, sdk.Loading} {
		s.phase(phase, "the engine starts again")
		until(t, "degraded block", func() bool { return b.Status().GetPhase() == string(sdk.Degraded) })
		s.phase(sdk.Ready, "")
		until(t, "ready block", func() bool { return b.Status().GetPhase() == string(sdk.Ready) })
	}
}

// The gateway answers requests for the models while no replica can.
func TestTheGatewayKnowsTheModelsName(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}})
	b.Ready()
	s.say()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.Output("base_url")+"/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+b.Output("api_key"))
	until(t, "answer that names the model", func() bool {
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		return err == nil && strings.Contains(string(body), `"id":"m"`)
	})
	http.DefaultClient.CloseIdleConnections()
}
