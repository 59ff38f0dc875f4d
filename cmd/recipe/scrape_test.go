package main

import (
	"context"
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
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/ui"
)

// rare are families that a healthy run on a machine without a GPU does not have.
var rare = []string{"recipe_machine_gpu_utilization", "recipe_machine_gpu_memory_used_bytes",
	"recipe_block_stalled_seconds"}

// One scrape of a live run has what the engine knows, the trainer's metrics, and what gateway and trajectory API serve,
// under the labels of run and block; and it has whatever the Grafana file asks for.
//
//docs:metrics.md Prometheus and Grafana
func TestOneScrapeShowsEngineAndPlugins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "quickstart.hcl"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	apply := exec.CommandContext(ctx, "recipe", "apply", "-y", "--var", "steps=100000", "quickstart.hcl")
	apply.Dir = dir
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = apply.Process.Signal(syscall.SIGINT)
		_ = apply.Wait()
	}()
	run := state.Dir(filepath.Join(dir, ".recipe", "quickstart"))
	server, err := ui.New(ui.Options{Token: "s3cret", Runs: func() (map[string]state.Dir, error) {
		if !run.Exists() {
			return nil, nil
		}
		return map[string]state.Dir{"quickstart": run}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	scrape := func(token string) (int, string) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		r.Host = "127.0.0.1"
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Result().Body)
		return w.Code, string(body)
	}
	if code, body := scrape("wrong"); code != http.StatusUnauthorized || strings.Contains(body, "recipe_") {
		t.Fatalf("a wrong token is answered with %d %s", code, body)
	}
	wanted := append(grafanaFamilies(t),
		`recipe_block_metric{run="quickstart",block="trainer.tiny.policy",metric="reward"}`,
		`recipe_block_up{run="quickstart",block="inference.tiny.policy"} 1`,
		`recipe_block_up{run="quickstart",block="trajectories.builtin.default"} 1`,
		`recipe_gateway_output_tokens_total{run="quickstart",block="inference.tiny.policy"}`,
		`recipe_trajectories_queue_groups{run="quickstart",block="trajectories.builtin.default"`,
		`recipe_run_info{run="quickstart",recipe="quickstart",status="running"} 1`)
	for {
		_, page := scrape("s3cret")
		missing := slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return strings.Contains(page, "\n"+s) })
		if len(missing) == 0 {
			lint(t, page)
			for _, purpose := range []string{"data", "control"} {
				for _, token := range tokensOf(t, run, purpose) {
					if strings.Contains(page, token) {
						t.Errorf("the page contains a %s token", purpose)
					}
				}
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the page never has %q:\n%s", missing, page)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// lint checks names, types and help texts of metrics as promtool check metrics does, and the types of some.
func lint(t *testing.T, page string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{"recipe_trajectories_staleness summary", "recipe_trajectories_groups_in_total counter",
		"recipe_gateway_requests_total counter", "recipe_gateway_request_seconds histogram", "recipe_block_step gauge"} {
		if !strings.Contains(page, "# TYPE "+want+"\n") {
			t.Errorf("the page has no %s", want)
		}
	}
}

// grafanaFamilies are what the panels of docs/grafana/recipe.json ask for, but those that are rare.
func grafanaFamilies(t *testing.T) (out []string) {
	t.Helper()
	type source struct{ UID string }
	var board struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct{ List []struct{ Name string } }
		Panels        []struct {
			ID          int
			Type, Title string
			Datasource  source
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct {
				RefID, Expr string
				Datasource  source
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(repository, "docs", "grafana", "recipe.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || board.SchemaVersion == 0 || len(board.Panels) == 0 ||
		len(board.Templating.List) != 2 {
		t.Fatalf("the file is no dashboard: %+v", board)
	}
	family, ids := regexp.MustCompile(`recipe_[a-z_]+`), map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Type == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 ||
			p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q is incomplete: %+v", p.Title, p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			names := family.FindAllString(target.Expr, -1)
			if len(names) == 0 || target.RefID == "" || target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q asks for nothing: %+v", p.Title, target)
			}
			for _, name := range names {
				if !slices.Contains(rare, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

func tokensOf(t *testing.T, run state.Dir, purpose string) (out []string) {
	t.Helper()
	rec, err := state.Read(run)
	if err != nil {
		t.Fatal(err)
	}
	for a, block := range rec.Blocks {
		token, err := run.Token(purpose, a, block.Renewals)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, token)
	}
	return out
}
