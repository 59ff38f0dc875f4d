package e2e

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// runAPI serves the trajectory API as `recipe run-api` does, until the test ends.
func runAPI(t *testing.T, token string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	ready := &announcement{line: make(chan string, 1)}
	go func() {
		over <- trajectories.Run(ctx, trajectories.RunOptions{Config: trajectories.Config{Dir: t.TempDir(), Token: token}},
			ready)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	select {
	case line := <-ready.line:
		from := strings.Index(line, "http://")
		address, _, _ := strings.Cut(line[from:], " ")
		address, _, _ = strings.Cut(address, "/t/")
		return address
	case err := <-over:
		t.Fatalf("the trajectory API did not start: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the trajectory API was not ready within 30 s")
	}
	return ""
}

type announcement struct{ line chan string }

func (a *announcement) Write(text []byte) (int, error) {
	a.line <- string(bytes.TrimSpace(text))
	return len(text), nil
}

// Environments and trainers can use any deployment of the API: on this machine, behind a token, behind a proxy under a
// path, through a URL that holds the token, and the original run-api if ORIGINAL_RUN_API names one.
func TestAnyDeploymentOfTheTrajectoryAPICanBeUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	type deployment struct{ url, token string }
	all := map[string]func(t *testing.T) deployment{
		"local":           func(t *testing.T) deployment { return deployment{runAPI(t, ""), ""} },
		"token":           func(t *testing.T) deployment { return deployment{runAPI(t, "secret"), "secret"} },
		"token in a path": func(t *testing.T) deployment { return deployment{runAPI(t, "secret") + "/t/secret", ""} },
		"behind a proxy": func(t *testing.T) deployment {
			behind, err := url.Parse(runAPI(t, "secret"))
			if err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(http.StripPrefix("/team/rl", httputil.NewSingleHostReverseProxy(behind)))
			t.Cleanup(proxy.Close)
			return deployment{proxy.URL + "/team/rl/", "secret"}
		},
	}
	if original := os.Getenv("ORIGINAL_RUN_API"); original != "" {
		all["run-api"] = func(t *testing.T) deployment {
			r, err := http.Get(original + "/reset_data") // it may hold groups of another test
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			return deployment{original, ""}
		}
	}
	for name, deploy := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			api := plugintest.Ref("trajectories.external.api", kind.Trajectories,
				outputs.Trajectories{URL: d.url, Token: d.token})
			inference, environment, trainer := plugintest.Harness(t, tiny.Inference()),
				plugintest.Harness(t, arithmetic.Definition()), plugintest.Harness(t, tiny.Trainer())
			inference.Start(configure(t, inference.Def, func(*tiny.InferenceConfig) {}))
			inference.Ready()
			environment.Start(configure(t, environment.Def, func(c *arithmetic.Config) {
				c.Inference, c.Trajectories = inference.Reference(), &api
			}))
			environment.Ready()
			trainer.Start(configure(t, trainer.Def, func(c *tiny.TrainerConfig) {
				c.Model = inference.Output("model")
				c.Environments, c.Trajectories, c.Steps = []spec.Ref{environment.Reference()}, &api, 3
			}))
			trainer.WaitPhase(sdk.Completed)
		})
	}
}
