package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// TestMetricsOfDocsAreReported: each alert and stop rule of the docs is about a metric that every trainer reports.
func TestMetricsOfDocsAreReported(t *testing.T) {
	t.Parallel()
	rule := regexp.MustCompile(`(?m)^ *metric +=\s*"([^"]+)"`)
	found := 0
	for _, page := range []string{"alerts.md", "language.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
			for _, d := range builtins() {
				if d.Kind != "trainer" {
					continue
				}
				found++
				if known, _ := d.Schema.Reports(m[1]); known == nil {
					t.Errorf("%s: %s does not declare %q", page, d.ID(), m[1])
				}
				if known, _ := d.Schema.Reports("tokens_total"); known == nil {
					t.Errorf("%s does not declare tokens_total, which stop_when { tokens } needs", d.ID())
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d examples for trainers found", found)
	}
}

// TestPluginsDeclareMetrics: without a declaration a misspelled name in an alert would never be found.
func TestPluginsDeclareMetrics(t *testing.T) {
	t.Parallel()
	for _, d := range builtins() {
		if d.Kind != "executor" && d.Kind != "trajectories" && d.Schema.Metrics == nil {
			t.Errorf("%s declares no metrics: add sdk.WithMetrics", d.ID())
		}
	}
}

// TestReportedMetricsAreDeclared: what the blocks of a run report, their plugins declare. Tokens end a run.
func TestReportedMetricsAreDeclared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recipe := strings.ReplaceAll(agentRecipe, "  steps ", "  stop_when {\n    tokens = 3000\n  }\n  save_every = 1\n"+
		"  steps ")
	file := filepath.Join(dir, "r.hcl")
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "recipe", "apply", "-y", "r.hcl")
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := string(text)
	if !strings.Contains(out, "tokens trained, limit 3000") {
		t.Errorf("the tokens did not end the run:\n%s", out)
	}
	checked, saved := 0, 0
	err = event.Read(filepath.Join(dir, ".recipe", "r", "events"), 0, func(e event.Event) error {
		if e.Type == event.Checkpoint { // written before its weights are served
			if saved++; e.Version != e.Step {
				t.Errorf("the checkpoint of step %d has policy version %d", e.Step, e.Version)
			}
		}
		if e.Type != event.Metrics {
			return nil
		}
		a, err := addr.Parse(e.Address)
		if err != nil {
			return err
		}
		for name := range e.Metrics {
			checked++
			if d := definitionOf(a); d == nil {
				t.Errorf("no plugin of %s", a)
			} else if known, _ := d.Schema.Reports(name); known == nil {
				t.Errorf("%s reports %s, which its plugin does not declare", a, name)
			}
		}
		return nil
	})
	if err != nil || checked < 20 || saved < 2 {
		t.Errorf("%d metrics and %d checkpoints checked, %v", checked, saved, err)
	}
}

func definitionOf(a addr.Block) *sdk.Definition {
	for _, d := range builtins() {
		if d.Kind == a.Kind && d.Name == a.Plugin {
			return d
		}
	}
	return nil
}
