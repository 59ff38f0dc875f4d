package ui

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/recipe-rl/recipe/internal/samples"
)

// BenchmarkHundredThousandSamples answers for pages of the list of samples of 100,000 groups: the newest, and one for
// which all groups are looked at, because the filter fits none.
func BenchmarkHundredThousandSamples(b *testing.B) {
	const groups = 100_000
	f := newFixture(b, Options{})
	for i := range groups {
		f.record.Post(samples.Line{ID: uint64(i + 1), Environment: "sums", Sequences: 2, Tokens: 10, Scores: []float32{0, 1}},
			fmt.Appendf(nil, `{"tokens":[[3,4,5,6],[3,4,5,3]],"masks":[[-100,-100,-100,6],[-100,-100,-100,3]],`+
				`"scores":[1,0],"messages":[[{"role":"user","content":"%d+1="}],[{"role":"user","content":"%d+1="}]]}`, i, i))
		if i%10_000 == 9_999 {
			f.written(i + 1)
		}
	}
	f.ask("/api/runs/demo/samples") // reads the index, once
	for name, path := range map[string]string{"newest": "/samples?limit=50", "none fits": "/samples?limit=50&least=2"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if w := f.ask("/api/runs/demo" + path); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
