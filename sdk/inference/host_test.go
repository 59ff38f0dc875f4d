package inference_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/gateway"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

type serverConfig struct {
	Engines []string `recipe:"engines" required:"true" doc:"Addresses of the engines."`
}

// serverOutputs are more than the kind's.
type serverOutputs struct {
	outputs.Inference
	Transports []string `recipe:"transports" doc:"How weights can move."`
}

// server is an inference plugin whose engines are the test's; the test tells it what to say to its host.
type server struct {
	say     chan func(inference.Host)
	updates chan sdk.Weights
	panics  bool
}

func (s *server) Run(ctx context.Context, req sdk.Request[serverConfig], host inference.Host) error {
	var replicas []inference.Replica
	for _, url := range req.Config.Engines {
		replicas = append(replicas, inference.Replica{ID: url, URL: url})
	}
	host.Serve(replicas...)
	host.Ready(serverOutputs{Inference: outputs.Inference{Model: "m", MaxModelLen: 10}, Transports: []string{"reload", "lora"}})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-s.say:
			f(host)
		}
	}
}

func (s *server) UpdateWeights(_ context.Context, w sdk.Weights) error {
	if s.panics {
		panic("no such tensor")
	}
	s.updates <- w
	return nil
}

func (s *server) Logprobs(_ context.Context, tokens []int) ([]float64, error) {
	return make([]float64, len(tokens)-1), nil
}

func newServer() *server {
	return &server{say: make(chan func(inference.Host)), updates: make(chan sdk.Weights, 16)}
}

func (s *server) definition() *sdk.Definition {
	return inference.New("test", "Inference for tests.", func() inference.Plugin[serverConfig] { return s },
		sdk.WithOutputs(serverOutputs{}), sdk.WithVersion("2.1.0"), sdk.WithDoc("More about it."))
}

func engine(t *testing.T) string {
	t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"choices":[]}`)) }))
	t.Cleanup(e.Close)
	return e.URL
}

// replicas waits until the gateway's replicas are as expected, by how many are let through.
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
		"base_url": cty.StringVal("http://" + listen + "/v1"), "generate_url": cty.StringVal("http://" + listen + "/generate"),
		"control_url": cty.StringVal("http://" + listen), "api_key": cty.StringVal("test-token"), "control_token": cty.StringVal("test-control-token"),
		"model": cty.StringVal("m"), "transports": cty.ListVal([]cty.Value{cty.StringVal("reload"), cty.StringVal("lora")}),
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
	u := gateway.WeightUpdate{Version: 1, Path: w.Path, Transport: w.Transport, Options: inference.UpdateOptions(w)}
	if _, err := g.UpdateWeights(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got := <-s.updates; got != w {
		t.Errorf("the plugin was told %+v, want %+v", got, w)
	}
	replicas(t, b, "three replicas at version 1", func(s gateway.Status) bool { return through(s) == 3 && s.Version == 1 })
}

func TestAnEngineThatComesBackIsClosedUntilItsWeightsAreKnown(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := engine(t)
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{first}})
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	if _, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Version: 1, Path: "/w"}); err != nil {
		t.Fatal(err)
	}
	<-s.updates
	// The engine dies and is started again at the same address, from its base model: the plugin says so in this order.
	s.say <- func(h inference.Host) { h.Serve() }
	replicas(t, b, "gateway without replicas", func(s gateway.Status) bool { return len(s.Replicas) == 0 })
	s.say <- func(h inference.Host) { h.Serve(inference.Replica{ID: first, URL: first}) }
	replicas(t, b, "replica", func(s gateway.Status) bool { return len(s.Replicas) == 1 })
	time.Sleep(100 * time.Millisecond)
	replicas(t, b, "closed replica", func(s gateway.Status) bool { return through(s) == 0 && s.Version == 1 })
	// Once it is known that it serves version 0, the gateway loads the last update by itself.
	s.say <- func(h inference.Host) { h.Loaded(0) }
	if w := <-s.updates; w.Version != 1 || w.Path != "/w" {
		t.Errorf("it was brought %+v", w)
	}
	replicas(t, b, "replica at version 1", func(s gateway.Status) bool { return through(s) == 1 })
}

func TestAnEngineThatLoadedThePolicyServesAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}}, func(r *pluginpb.StartRequest) { r.Policy = &pluginpb.Policy{Version: 7, Weights: "/w"} })
	b.Ready()
	replicas(t, b, "closed replica", func(s gateway.Status) bool { return s.Version == 7 && through(s) == 0 })
	s.say <- func(h inference.Host) { h.Loaded(7) }
	replicas(t, b, "replica at version 7", func(s gateway.Status) bool { return through(s) == 1 })
	select {
	case w := <-s.updates:
		t.Errorf("it was made to load %+v although it had", w)
	default:
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
	_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Version: 1, Path: "/w"})
	if err == nil || !strings.Contains(err.Error(), "no such tensor") {
		t.Errorf("update: %v", err)
	}
	if p := b.Status().GetPhase(); p != "ready" {
		t.Errorf("the block is %s", p)
	}
}

// Once the gateway stands, dependents may start: an engine that starts again is a degraded block and not one that is not ready yet.
func TestAnEngineThatStartsAgainKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}})
	b.Ready()
	for _, phase := range []sdk.Phase{sdk.Starting, sdk.Loading} {
		s.say <- func(h inference.Host) { h.Phase(phase, "the engine starts again") }
		until(t, "degraded block", func() bool { return b.Status().GetPhase() == string(sdk.Degraded) })
		s.say <- func(h inference.Host) { h.Phase(sdk.Ready, "") }
		until(t, "ready block", func() bool { return b.Status().GetPhase() == string(sdk.Ready) })
	}
}

// The gateway answers for the model while no replica can.
func TestTheGatewayKnowsTheModelsName(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	b.Start(serverConfig{Engines: []string{engine(t)}})
	b.Ready()
	s.say <- func(h inference.Host) { h.Serve() }
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
