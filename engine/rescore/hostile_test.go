package rescore

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk"
)

// TestARecordOfTooManyParts is small on the disk, and would take gigabytes when it is decoded.
func TestARecordOfTooManyParts(t *testing.T) {
	t.Parallel()
	body := json.RawMessage(`{"tokens":[[1]],"masks":[[1]],"overrides":[{}` + strings.Repeat(",{}", 1<<18) + `]}`)
	if _, err := (entry{}).parse(body); err == nil || !strings.Contains(err.Error(), "objects") {
		t.Errorf("got %v; want an error that it has too many objects", err)
	}
}

// TestAnIndexThatPromisesSequences names more of them than memory has, of a group that cannot be read.
func TestAnIndexThatPromisesSequences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := samples.NewWriter(filepath.Join(dir, "samples", "trajectories.builtin.default"),
		samples.Limits{Bytes: 1 << 30}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for i, sequences := range []int{math.MaxInt, -1} {
		w.Post(samples.Line{ID: uint64(i), Environment: "letters_0", Sequences: sequences, Tokens: sequences}, []byte(`no JSON`))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, f := open(t, dir), results(t, dir)
	defer func() { _ = f.Close() }()
	if err := r.Fill(t.Context(), &letters{}, f, nil, nil); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Compare(f, nil); err != nil || c.Groups != 2 || c.Unable != mostPairs {
		t.Errorf("got %+v, %v; want two groups that cannot be scored", c, err)
	}
}

// TestAGroupOfManyRollouts is compared in seconds, and its sums are numbers that JSON has.
func TestAGroupOfManyRollouts(t *testing.T) {
	t.Parallel()
	before, after := math.MaxFloat64, -math.MaxFloat64
	g, r := &Group{}, Result{}
	for range 1 << 20 {
		g.Before = append(g.Before, &before)
		r.Completions = append(r.Completions, sdk.RescoredCompletion{Score: &after})
	}
	g.Completions = make([]sdk.RecordedCompletion, len(g.Before))
	c, start := &comparing{reasons: map[string]*Reason{}}, time.Now()
	c.add(g, r)
	if _, err := json.Marshal(c.done()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestResultsOfTooManyParts are small on the disk, and would take gigabytes when they are decoded.
func TestResultsOfTooManyParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := results(t, dir)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenFile(f.Path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = to.WriteString(`{"completions":[{}` + strings.Repeat(",{}", mostValues/2) + "]}\n")
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := OpenFile(t.Context(), dir, environment(), Header{Digest: "d"})
	if err == nil {
		t.Error("it is read")
		again.Close()
	}
}
