package trajectories

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"testing"
)

func gzipped(body []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

//docs:survival.md tokens change between turns
func TestMissingLogprobsComeFromTheRecord(t *testing.T) {
	t.Parallel()
	one := []Completion{{Logprobs: []float64{-0.5, -0.25}, MinVersion: 3, MaxVersion: 4}}
	for _, c := range []struct {
		name     string
		found    []Completion
		err      error
		more     string
		logprobs any
		version  any
	}{
		{"one record", one, nil, "", "[[1 -0.5 -0.25]]", "[3 4]"},
		{"no record", nil, nil, "", nil, nil},
		{"two records", append(one, one...), nil, "", nil, nil},
		{"a record of another length", []Completion{{Logprobs: []float64{-1}, MinVersion: 3, MaxVersion: 3}}, nil, "",
			nil, 3},
		{"a record without a version", []Completion{{Logprobs: []float64{-1, -2}, MinVersion: -1, MaxVersion: -1}}, nil,
			"", "[[1 -1 -2]]", nil},
		{"a gateway that fails", nil, errors.New("gone"), "", nil, nil},
		{"given log-probabilities stay", one, nil, `,"inference_logprobs":[[1,-9,-9]]`, "[[1 -9 -9]]", "[3 4]"},
		{"a given version stays", one, nil, `,"policy_version":1`, "[[1 -0.5 -0.25]]", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked [][]int64
			f := newFixture(t, Config{Completions: func(_ context.Context, tokens []int64, prompt int) ([]Completion, error) {
				asked = append(asked, append(tokens, int64(prompt)))
				return c.found, c.err
			}})
			f.trainer(1)
			f.ok("POST", "/scored_data", `{"tokens":[[7,8,9]],"masks":[[-100,8,9]],"scores":[1]`+c.more+`}`)
			g := f.ok("GET", "/batch", "")["batch"].([]any)[0].(map[string]any)
			equal(t, "the log-probabilities", g["inference_logprobs"], c.logprobs)
			equal(t, "the version", g["policy_version"], c.version)
			equal(t, "what was asked", fmt.Sprint(asked), "[[7 8 9 1]]")
		})
	}
}
