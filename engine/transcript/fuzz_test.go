package transcript_test

import (
	"testing"

	"github.com/recipe-rl/recipe/engine/transcript"
)

// FuzzTranscript: whatever a recorded group holds, its conversations can be shown.
func FuzzTranscript(f *testing.F) {
	f.Add([]byte(`{"tokens":[[1,2,3],[1,2]],"masks":[[-100,2,3],[-100,2]],"scores":[1,0],` +
		`"messages":[[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}],[]]}`))
	f.Add([]byte(`{"tokens":[[-1,2147483647]],"masks":[[]],"scores":[],"messages":[[{"content":7}],null,[]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		g, err := transcript.Parse(body)
		if err != nil {
			return
		}
		shown := transcript.Of(g, nil)
		for i := range min(len(g.Tokens), 8) {
			shown.Messages(i)
			shown.Texts(i)
		}
	})
}
