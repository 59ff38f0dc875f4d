package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// A minimal second engine: the server program is this test's binary, its weights are one number. The plugin below
// passes the compliance suite, which shows that the kit supports an engine that is not vLLM.

type stubConfig struct {
	Model    string `recipe:"model" required:"true" doc:"Folder with the first weights"`
	Replicas int64  `recipe:"replicas" default:"2" doc:"Servers"`
}

type stub struct{}

func (stub) Start(ctx context.Context, req sdk.Request[stubConfig], host inference.Host) (inference.Engine, error) {
	spec := engine.Spec{
		Title: "Stub", Slug: "stub", Model: req.Config.Model, Served: "stub", Published: "stub",
		Replicas: int(req.Config.Replicas), SleepMode: true,
		Limits: engine.Limits{Start: time.Minute, Update: time.Minute, Restarts: 3},
	}
	return engine.Start(ctx, spec, stub{}, engine.BlockOf(req), host), nil
}

func (stub) Command(l engine.Launch) (engine.Command, error) {
	exe, err := os.Executable()
	env := map[string]string{"STUB_MODEL": l.Model, "STUB_PORT": strconv.Itoa(l.Port), "STUB_KEY": l.Key}
	return engine.Command{Argv: []string{exe}, Env: l.Environment(nil, nil, env)}, err
}

func (stub) Connect(a engine.Address) engine.Client { return stubClient{engine.NewHTTP("Stub", a)} }

type stubClient struct{ *engine.HTTP }

func (c stubClient) Healthy(ctx context.Context) error { return c.Get(ctx, "/facts", nil) }
func (c stubClient) Ready(ctx context.Context) error   { return c.Answer(ctx) }
func (c stubClient) Answer(ctx context.Context) error {
	return c.Post(ctx, "/v1/completions", map[string]int{"max_tokens": 1}, nil)
}

func (c stubClient) Probe(ctx context.Context) (facts engine.Facts, err error) {
	err = c.Get(ctx, "/facts", &facts)
	return facts, err
}

func (c stubClient) Load(ctx context.Context, l engine.Load) (string, error) {
	if _, err := os.Stat(l.Weights.Path); err != nil {
		return "", &sdk.Error{Summary: "there are no such weights", Err: err}
	}
	return "", c.Post(ctx, "/load", l.Weights.Path, nil)
}

func (c stubClient) Logprobs(ctx context.Context, tokens []int) (values []float64, err error) {
	err = c.Post(ctx, "/logprobs", tokens, &values)
	return values, err
}

func (c stubClient) Sleep(ctx context.Context, level inference.SleepLevel) error {
	return c.Post(ctx, "/sleep", level, nil)
}

func (c stubClient) Wake(ctx context.Context, part engine.Part) error {
	return c.Post(ctx, "/wake", part, nil)
}

func (c stubClient) Asleep(ctx context.Context) (asleep bool, err error) {
	err = c.Get(ctx, "/asleep", &asleep)
	return asleep, err
}

// serveStub is the server program. Requests that need released memory fail, as on a GPU.
func serveStub() {
	if dir := os.TempDir(); strings.HasPrefix(filepath.Base(dir), "recipe-server-") { // it is the server's own
		_ = os.WriteFile(filepath.Join(dir, "of-a-server"), nil, 0o600)
	}
	var mu sync.Mutex
	var cacheAway, weightsAway bool
	weight := stubWeight(os.Getenv("STUB_MODEL"))
	route := func(path string, f func(in *json.Decoder) any) {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			out := f(json.NewDecoder(r.Body))
			if out == nil || r.Header.Get("Authorization") != "Bearer "+os.Getenv("STUB_KEY") {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	route("/facts", func(*json.Decoder) any {
		return engine.Facts{Version: "1.0", MaxModelLen: 64, Transports: []transport.Name{"reload"}, Sleeps: true}
	})
	route("/asleep", func(*json.Decoder) any { return cacheAway || weightsAway })
	route("/load", func(in *json.Decoder) any {
		var path string
		if in.Decode(&path) != nil || weightsAway {
			return nil
		}
		weight = stubWeight(path)
		return true
	})
	route("/sleep", func(in *json.Decoder) any {
		var level inference.SleepLevel
		_ = in.Decode(&level)
		if cacheAway, weightsAway = true, true; level == inference.SleepDrop {
			weight = -1e9
		}
		return true
	})
	route("/wake", func(in *json.Decoder) any {
		var part engine.Part
		_ = in.Decode(&part)
		weightsAway = weightsAway && part == engine.KVCache
		cacheAway = cacheAway && part == engine.Weights
		return true
	})
	route("/logprobs", func(in *json.Decoder) any {
		var tokens []int
		if in.Decode(&tokens) != nil || weightsAway {
			return nil
		}
		return plugintest.FakeLogprobs(weight, tokens)
	})
	route("/v1/completions", func(*json.Decoder) any {
		if weightsAway || cacheAway {
			return nil
		}
		return map[string]any{"choices": []any{map[string]any{
			"index": 0, "text": "x", "finish_reason": "length", "token_ids": []int{7}, "prompt_token_ids": []int{1},
			"logprobs": map[string]any{"tokens": []string{"x"}, "token_logprobs": []float64{weight}},
		}}}
	})
	_ = http.ListenAndServe("127.0.0.1:"+os.Getenv("STUB_PORT"), nil)
}

func stubWeight(dir string) (weight float64) {
	data, err := os.ReadFile(filepath.Join(dir, "fake.json"))
	if err != nil || json.Unmarshal(data, &weight) != nil {
		os.Exit(1)
	}
	return weight
}

func TestMain(m *testing.M) {
	if len(os.Args) > 6 && os.Args[1] == "agent" {
		fmt.Fprintln(os.Stderr, startOn(os.Args[6:]))
		os.Exit(1)
	}
	if os.Getenv("STUB_PORT") != "" {
		serveStub()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func stubDefinition() *sdk.Definition {
	return inference.New("stub", "Serves one number.", func() inference.Plugin[stubConfig] { return stub{} },
		sdk.WithOutputs(engine.Outputs{}))
}

//docs:survival.md all servers of one of several inference blocks are being started again
func TestASecondEngineStandsOnTheKit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	write := func(t *testing.T, dir string, weight float64) string {
		if _, err := plugintest.FakeWeights(dir, weight); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	plugintest.Compliance(t, stubDefinition(), plugintest.Suite{
		Config: func(t *testing.T) any { return stubConfig{Model: write(t, t.TempDir(), 0), Replicas: 2} },
		Weights: func(t *testing.T, dir string, version int64) sdk.Weights {
			return sdk.Weights{Version: version, Path: write(t, dir, float64(version)), Format: "hf", Transport: "reload"}
		},
	})
}
