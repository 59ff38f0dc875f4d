package rescore

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// A record may be anybody's: what is read of it is compared and written, or named as something that cannot be.
func FuzzRecordedGroup(f *testing.F) {
	for _, g := range []any{recorded([]string{"a", "b"}, []float64{1, 0}), recorded(nil, nil)} {
		body, err := json.Marshal(g)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, 2)
	}
	f.Add([]byte(`{"tokens":[[1]],"masks":[[-100,1]],"scores":[],"messages":[[{"role":"assistant"}]],"task":{}}`), 1)
	f.Add([]byte(`{"tokens":[[1]],"masks":[],"scores":[1],"overrides":[null],"messages":[[1,{}]],"task":1}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, scored int) {
		g, err := entry{key: Key{Record: "r", ID: 1}, function: scored%2 == 0}.parse(body)
		if err != nil {
			return
		}
		g.ForFunction()
		r := Result{Completions: make([]sdk.RescoredCompletion, max(0, min(scored, 8)))}
		for i := range r.Completions {
			if score := float64(i); i%3 != 2 {
				r.Completions[i].Score = &score
			}
		}
		c := &comparing{reasons: map[string]*Reason{}}
		c.add(g, r)
		c.done()
		w := &Writer{To: io.Discard, Least: func(int) int { return 1 }, Uninformative: true}
		if err := w.Add(g, r); err == nil && w.Written.Groups+w.Written.Failed != 1 {
			t.Errorf("written: %+v", w.Written)
		}
	})
}
