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

// keepers are trainers that keep their best checkpoints, and declare metrics: of a trainer by its name.
type keepers map[string][]spec.Metric

func (k keepers) Lookup(of kind.Kind, name string) (*schema.PluginSchema, error) {
	config := &spec.Schema{Metrics: k[name], Attributes: []*spec.Attribute{
		{Name: "keep_best", Type: cty.Number}, {Name: "best_metric", Type: cty.String},
		{Name: "weight", Type: cty.Number}}}
	return &schema.PluginSchema{Kind: of, Name: name, Config: config, Outputs: &spec.Schema{}}, nil
}

func (k keepers) Names(kind.Kind) []string { return nil }

// A plan names a metric for the best checkpoint that the trainer does not report: no checkpoint has a value of it.
func TestBestMetricsAreReported(t *testing.T) {
	t.Parallel()
	plugins := keepers{
		"closed": append(spec.Metrics("reward/{mean,std}", "", ""),
			spec.With("weight", spec.Metrics("kl/reward", "", ""))...),
		"open":   append(spec.Metrics("reward/mean", "", ""), spec.Metric{Name: "*"}),
		"silent": nil,
	}
	const meant = `Did you mean "reward/mean"?`
	for name, c := range map[string]struct {
		plugin, keep, metric, want string
		failure                    bool
	}{
		"reported":        {plugin: "closed", keep: "1", metric: "reward/std"},
		"misspelled":      {plugin: "closed", keep: "1", metric: "reward/mena", want: meant, failure: true},
		"no best is kept": {plugin: "closed", keep: "0", metric: "reward/mena"},
		"an alias": {plugin: "closed", keep: "1", metric: "reward", want: `reports as "reward/mean"`,
			failure: true},
		"not set":          {plugin: "closed", keep: "1", metric: "kl/reward", want: "only with weight, which is not set"},
		"others, too":      {plugin: "open", keep: "1", metric: "reward/mena", want: meant},
		"nothing declared": {plugin: "silent", keep: "1", metric: "reward/mena"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := strings.NewReplacer("PLUGIN", c.plugin, "KEEP", c.keep, "NAME", c.metric).Replace(
				"trainer \"PLUGIN\" \"t\" {\n  keep_best   = KEEP\n  best_metric = \"NAME\"\n}\n")
			_, diags := schema.LoadSource(filepath.Join(t.TempDir(), "r.hcl"), []byte(source),
				schema.Options{Plugins: plugins})
			text := ""
			for _, d := range diags {
				text += d.Detail + "\n"
			}
			if diags.HasErrors() != c.failure || (text != "") != (c.want != "") || !strings.Contains(text, c.want) {
				t.Errorf("failure %v, %q; want %v, %q", diags.HasErrors(), text, c.failure, c.want)
			}
		})
	}
}
