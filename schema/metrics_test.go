package schema_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// reporters are plugins that declare their metrics: of a trainer by its name.
type reporters map[string][]spec.Metric

func (r reporters) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	config := &spec.Schema{Metrics: r[name], Blocks: []*spec.Block{{Name: "section", Nesting: spec.Single,
		Schema: &spec.Schema{Attributes: []*spec.Attribute{{Name: "weight", Type: cty.Number}}}}}}
	return &schema.PluginSchema{Kind: k, Name: name, Config: config, Outputs: &spec.Schema{}}, nil
}

func (r reporters) Names(kind.Kind) []string { return nil }

func TestNamesOfMetrics(t *testing.T) {
	t.Parallel()
	plugins := reporters{
		"closed": spec.Metrics("{reward,tokens_total,parts/*}", "", ""),
		"python": spec.Metrics("reward/{mean,std}", "", ""),
		"open":   spec.Metrics("{reward,*}", "", ""),
		"silent": nil,
		"none":   {},
		"with":   spec.With("section.weight", spec.Metrics("kl", "", "")),
	}
	const stop, alarm = "trainer \"PLUGIN\" \"t\" {\n  stop_when {\n    metric = \"NAME\"\n    above  = 1\n  }\n}\n",
		"trainer \"PLUGIN\" \"t\" {}\nalert \"a\" {\n  metric  = \"NAME\"\n  above   = 1\n  desktop = true\n}\n"
	for name, c := range map[string]struct{ plugin, metric, want string }{
		"declared":          {plugin: "closed", metric: "reward"},
		"of a family":       {plugin: "closed", metric: "parts/format"},
		"an alias":          {plugin: "closed", metric: "reward/mean"},
		"the other alias":   {plugin: "python", metric: "reward"},
		"misspelled":        {plugin: "closed", metric: "rewrad", want: `does not report. Did you mean "reward"?`},
		"nothing like it":   {plugin: "closed", metric: "accuracy", want: "Unknown metric"},
		"a family's name":   {plugin: "closed", metric: "parts/", want: "Unknown metric"},
		"open":              {plugin: "open", metric: "rewrad", want: "Metric not known"},
		"without any claim": {plugin: "silent", metric: "rewrad"},
		"reports none":      {plugin: "none", metric: "rewrad", want: "Unknown metric"},
		"without its attribute": {plugin: "with", metric: "kl", want: "trainer.with.t reports it only with section.weight, " +
			"which is not set"},
	} {
		for form, source := range map[string]string{"stop_when": stop, "alert": alarm} {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				source := strings.NewReplacer("PLUGIN", c.plugin, "NAME", c.metric).Replace(source)
				_, diags := schema.LoadSource(filepath.Join(t.TempDir(), "r.hcl"), []byte(source),
					schema.Options{Plugins: plugins})
				text := ""
				for _, d := range diags {
					text += d.Summary + ": " + d.Detail + "\n"
				}
				if strings.Contains(text, "etric") != (c.want != "") || !strings.Contains(text, c.want) {
					t.Errorf("%q, want %q", text, c.want)
				}
			})
		}
	}
}

// A metric of a function is of one that the block names; the function may report others all the same.
func TestMetricsOfFunctions(t *testing.T) {
	t.Parallel()
	config := readingConfig(t)
	config.Metrics = []spec.Metric{{Name: "metrics/reward/*", Of: []string{"call", "calls.function"}}, {Name: "metrics/*"}}
	dir := t.TempDir()
	write(t, dir, map[string]string{"f.py": "def right(completions): pass\ndef short(completions): pass\n",
		"a.jsonl": "{\"prompt\": \"1\"}\n{\"prompt\": \"2\"}\n"})
	const meant = `holds only if the metric comes. Did you mean "metrics/reward/right"?`
	for metric, want := range map[string]string{"metrics/reward/right": "", "metrics/reward/short": "",
		"metrics/reward/right_2": "", "metrics/other": "", "metrics/reward/rihgt": meant, "metrics/reward/right_": meant} {
		source := "environment \"mine\" \"e\" {\n  call = \"f.py:right\"\n  data = \"a.jsonl\"\n  calls {\n" +
			"    function = \"f.py:short\"\n  }\n}\nalert \"a\" {\n  metric = \"" + metric +
			"\"\n  above = 1\n  desktop = true\n}\n"
		_, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(source), schema.Options{Plugins: readers{config}})
		text := ""
		for _, d := range diags {
			if strings.Contains(d.Summary, "etric") {
				text += d.Detail
			}
		}
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", metric, text, want)
		}
	}
}

// From when a metric is reported is with the alert and the rule that wait for it.
func TestMetricsComeWithTheirAttribute(t *testing.T) {
	t.Parallel()
	plugins := reporters{"with": spec.With("section.weight", spec.Metrics("kl", "", ""))}
	for weight, reported := range map[string]bool{"0": false, "0.5": true} {
		r, diags := schema.LoadSource(filepath.Join(t.TempDir(), "r.hcl"), []byte(strings.ReplaceAll(`trainer "with" "t" {
  section {
    weight = WEIGHT
  }
  stop_when {
    metric = "kl"
    above  = 1
  }
}
alert "a" {
  metric  = "kl"
  above   = 1
  desktop = true
}
`, "WEIGHT", weight)), schema.Options{Plugins: plugins})
		if diags.HasErrors() || (len(diags) == 0) != reported {
			t.Fatalf("with weight %s: %v", weight, diags)
		}
		want := ""
		if reported {
			want = "with section.weight"
		}
		if got := r.Alerts[0].Reporters; reported && (len(got) != 1 || got[0] != "trainer.with.t") {
			t.Errorf("with weight %s the alert is about reports of %v", weight, got)
		}
		if got := r.Alerts[0].Since; got != want {
			t.Errorf("with weight %s the alert has %q, want %q", weight, got, want)
		}
		if got := r.Blocks[0].Meta.StopWhen[0].Since; got != want {
			t.Errorf("with weight %s the rule has %q, want %q", weight, got, want)
		}
	}
}
