package tiny

import (
	"math"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// The built-in model reads any text and long ones, and answers what it could read before as it did.
func TestTheBuiltInModelReadsAnyText(t *testing.T) {
	t.Parallel()
	plain, err := lm.Decode(warm)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := Warm()
	if err != nil {
		t.Fatal(err)
	}
	if c := wide.Params.Config; c.Context != longestContext || c.Vocabulary != plain.Params.Config.Vocabulary ||
		c.Width != plain.Params.Config.Width || c.Layers != plain.Params.Config.Layers {
		t.Errorf("the shape is %+v, of the checkpoint %+v", c, plain.Params.Config)
	}
	tokenizer, err := wide.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := tokenizer.Encode("12+34=46")
	if err != nil {
		t.Fatal(err)
	}
	var a, b lm.Activations
	if before, now := plain.Params.LogProbs(&a, sums), wide.Params.LogProbs(&b, sums); !slices.Equal(before, now) {
		t.Errorf("log-probabilities of a sum are %v, before %v", now, before)
	}
	const text = "Größe: 山\t🙂\x00 = ?"
	ids, err := tokenizer.Encode(text)
	if err != nil || tokenizer.Decode(ids) != text {
		t.Fatalf("%q becomes %v (%v), which is %q", text, ids, err, tokenizer.Decode(ids))
	}
	long := slices.Repeat(ids, 3*plain.Params.Config.Context/len(ids))
	for i, l := range wide.Params.LogProbs(&a, long) {
		if math.IsNaN(l) || l > 0 || int(long[i]) >= wide.Params.Config.Vocabulary && i > 0 && l != lm.NeverWritten {
			t.Errorf("the log-probability of token %d, %d, is %v", i, long[i], l)
		}
	}
	// A decoder reads them alike.
	var d lm.Decoder
	cache := lm.NewCache(wide.Params.Config)
	logits := slices.Clone(d.Extend(wide.Params, []*lm.Cache{cache}, [][]int32{long}))
	wide.Params.Forward(&a, [][]int32{long})
	for i, v := range a.Logits(0, len(long)-1) {
		if math.Abs(float64(v-logits[i])) > 1e-3 {
			t.Fatalf("the decoder gives %v for token %d, a whole pass %v", logits[i], i, v)
		}
	}
}

// Weights that were written before the model read bytes fit the model of now.
func TestOlderWeightsFit(t *testing.T) {
	t.Parallel()
	old, err := lm.Decode(warm)
	if err != nil {
		t.Fatal(err)
	}
	old.Adam = lm.NewAdam(lm.AdamConfig{}, len(old.Params.Flat()))
	now, err := Warm()
	if err != nil {
		t.Fatal(err)
	}
	widenLike(old, now.Params.Config)
	if old.Params.Config != now.Params.Config || !slices.Equal(old.Params.Flat(), now.Params.Flat()) ||
		len(old.Adam.Mean) != len(now.Params.Flat()) {
		t.Errorf("an older checkpoint has the shape %+v, want %+v", old.Params.Config, now.Params.Config)
	}
	data, err := old.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := lm.Decode(data); err != nil || again.Params.Config != now.Params.Config {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
}
