package run

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// bare has plugins of every name, without attributes.
type bare struct{}

func (bare) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	return &schema.PluginSchema{Kind: k, Name: name, Config: &spec.Schema{}, Outputs: &spec.Schema{}}, nil
}

func (bare) Names(kind.Kind) []string { return nil }

// TestStopRulesOfDocsHold: each stop rule of the page on the language ends a trainer, and not earlier.
//
//docs:language.md the examples of stop_when
func TestStopRulesOfDocsHold(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "language.md"))
	if err != nil {
		t.Fatal(err)
	}
	bodies := regexp.MustCompile(`(?s)\n  (stop_when \{.*?\n  \})`).FindAllStringSubmatch(string(page), -1)
	for _, tokens := range regexp.MustCompile("(?m)^\\| `(tokens = \\d+)`").FindAllStringSubmatch(string(page), -1) {
		bodies = append(bodies, []string{"", "stop_when {\n" + tokens[1] + "\n}"})
	}
	if len(bodies) < 3 {
		t.Fatalf("only %d rules found", len(bodies))
	}
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for i, body := range bodies {
		r, diags := schema.LoadSource("page.hcl", []byte("trainer \"x\" \"t\" {\n"+body[1]+"\n}\n"),
			schema.Options{Plugins: bare{}})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		s := newStopRules(r.Blocks[0].Meta.StopWhen, start)
		step := int64(0)
		report := func(reward, tokens float64, after time.Duration) string {
			step++
			return cmp.Or(s.metrics(step, map[string]float64{"reward/mean": reward, "tokens_total": tokens}),
				s.wall(start.Add(after)))
		}
		for range 10 {
			if why := report(0.9, 1000, time.Minute); why != "" {
				t.Fatalf("rule %d ends at once: %s", i, why)
			}
		}
		why := ""
		for range 5 {
			if why != "" {
				t.Errorf("rule %d ends before the fifth step: %s", i, why)
			}
			why = report(0.96, 1000, time.Minute)
		}
		if why = cmp.Or(why, report(0.9, 1e6, time.Minute), report(0.9, 1000, 2*time.Hour)); why == "" {
			t.Errorf("rule %d does not end the trainer:\n%s", i, body[1])
		}
	}
}
