package ui

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/internal/samples"
)

// The completions of an evaluation are shown behind those that are trained on, with everything beside the score.
func TestSamplesOfAnEvaluation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.record.Post(samples.Line{ID: 1, Environment: "sums", Sequences: 1},
		[]byte(`{"tokens":[[3,4]],"masks":[[-100,4]],"scores":[1]}`))
	f.written(1)
	block := samples.EvaluationFolder("20260102T030405Z.sums")
	w, err := samples.NewWriter(filepath.Join(string(f.dir), "samples", block), samples.Limits{Bytes: 1 << 20},
		func(err error) { t.Error(err) })
	must(t, err)
	w.Post(samples.Line{ID: 1, Environment: "sums (held out)", Sequences: 2}, []byte(`{"tokens":[[3,4],[3,5]],`+
		`"masks":[[-100,4],[-100,-100]],"scores":[1,1],"group_overrides":{"expected":"42\u001b[31m"},"overrides":[`+
		`{"metrics":{"reward/exact":1,"odd":"x"},"finish_reason":"stop"},{"failed":"the judge is away"}]}`))
	w.Post(samples.Line{ID: 2, Environment: "sums (held out)", Sequences: 2}, []byte(`{"tokens":[[3,4],[3,5]],`+
		`"masks":[[-100,4],[-100,-100]],"scores":[1,1],"overrides":[{"rollout":0},{"rollout":0,"masked":[`+
		`{"start":1,"end":2,"why":"undelivered\u001b[31m"},{"start":-1,"end":2},{"start":2,"end":1},3]}]}`))
	must(t, w.Close())
	for query, want := range map[string][]bool{"": {false, true, true}, "?state=evaluation": {true, true},
		"?state=waiting": {false}} {
		var list struct{ Groups []groupRow }
		f.get("/samples"+query, &list)
		var got []bool
		for _, g := range list.Groups {
			got = append(got, g.Evaluation)
		}
		if !slices.Equal(got, want) {
			t.Errorf("samples%s: of an evaluation %v, want %v", query, got, want)
		}
	}
	var g struct {
		Expected    string
		Completions []struct {
			Score          *float64
			Metrics        map[string]float64
			Finish, Failed string
			Part           bool
			Masked         []maskedRow
		}
	}
	f.get("/samples/"+block+"/1", &g)
	if g.Expected != "42␛[31m" || len(g.Completions) != 2 {
		t.Fatalf("the group is %+v", g)
	}
	if c := g.Completions[0]; c.Score == nil || *c.Score != 1 || len(c.Metrics) != 1 || c.Metrics["reward/exact"] != 1 ||
		c.Finish != "stop" {
		t.Errorf("the first completion is %+v", c)
	}
	if c := g.Completions[1]; c.Score != nil || c.Failed != "the judge is away" {
		t.Errorf("the completion that failed is %+v", c)
	}
	f.get("/samples/"+block+"/2", &g)
	if a, b := g.Completions[0], g.Completions[1]; a.Part || a.Masked != nil || !b.Part ||
		!slices.Equal(b.Masked, []maskedRow{{1, 2, "undelivered␛[31m"}}) {
		t.Errorf("the parts of a rollout are %+v and %+v", a, b)
	}
}
