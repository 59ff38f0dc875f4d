package tools

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// isRecord reports whether a folder holds a record of samples (docs/recording.md).
func isRecord(dir string) bool {
	segments, err := samples.Segments(dir)
	return err == nil && len(segments) > 0
}

// openRecord answers for the groups of a record of samples as the server of a store does.
func openRecord(dir string) (*source, error) {
	reader, err := samples.NewReader(dir)
	if err != nil {
		return nil, err
	}
	if _, err := reader.Refresh(); err != nil {
		reader.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /groups", func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			limit = 1000
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"groups": summaries(reader, filepath.Base(dir), after, limit)})
	})
	mux.HandleFunc("GET /groups/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.ParseUint(r.PathValue("id"), 10, 64)
		g := reader.Group(id)
		if g == nil {
			http.Error(w, "the record has no group "+r.PathValue("id"), http.StatusNotFound)
			return
		}
		body, _, err := reader.Body(g)
		if err != nil {
			http.Error(w, err.Error(), http.StatusGone)
			return
		}
		_, _ = w.Write(body)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(outcomeOf(reader, filepath.Base(dir)))
	})
	for _, path := range []string{"/policy_version", "/environments"} { // the first answer has all
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "a record of samples has groups only, no "+r.URL.Path, http.StatusNotFound)
	})
	return &source{most: mostBytes, base: "http://localhost", do: func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Result(), nil
	}, close: func() error { reader.Close(); return nil }}, nil
}

// summaries are the groups of a record after one, by id, limit of them at most. They are recorded in another order.
func summaries(reader *samples.Reader, folder string, after uint64, limit int) []trajectories.Summary {
	list, _ := reader.Groups()
	slices.SortFunc(list, func(a, b *samples.Group) int { return cmp.Compare(a.ID, b.ID) })
	out := []trajectories.Summary{}
	for _, g := range list {
		if g.ID <= after || len(out) == limit {
			continue
		}
		one := trajectories.Summary{ID: g.ID, Env: g.Environment, Size: g.Sequences, Tokens: g.Tokens, Bytes: g.Bytes,
			MinVersion: -1, MaxVersion: -1, State: "waiting"}
		if len(g.Versions) == 2 {
			one.MinVersion, one.MaxVersion = g.Versions[0], g.Versions[1]
		}
		switch {
		case samples.OfEvaluation(folder):
			one.State = "evaluation"
		case g.Dropped != nil:
			one.State = "dropped"
		case g.Used != nil:
			one.State = "trained"
		}
		out = append(out, one)
	}
	return out
}

// outcome is what became of the groups of a record, as the server of a store says of its groups.
type outcome struct {
	Step         int64                     `json:"current_step"`
	Queue        int64                     `json:"queue_size"`
	Version      int64                     `json:"version"`
	Environments []*trajectories.EnvReport `json:"environments"`
}

// outcomeOf counts the groups of a record. No environment is connected to it.
func outcomeOf(reader *samples.Reader, folder string) outcome {
	list, _ := reader.Groups()
	out, of := outcome{Version: -1}, map[string]*trajectories.EnvReport{}
	for _, g := range list {
		e := of[g.Environment]
		if e == nil {
			e = &trajectories.EnvReport{ID: -1, Name: g.Environment, Dropped: map[string]int64{}}
			of[g.Environment], out.Environments = e, append(out.Environments, e)
		}
		e.GroupsIn, e.SequencesIn, e.TokensIn = e.GroupsIn+1, e.SequencesIn+int64(g.Sequences), e.TokensIn+int64(g.Tokens)
		if len(g.Versions) == 2 {
			out.Version = max(out.Version, g.Versions[1])
		}
		switch {
		case g.Dropped != nil:
			e.Dropped[g.Dropped.Reason]++
			e.DropRate++ // a number so far
		case g.Used != nil:
			e.GroupsOut++
			out.Step = max(out.Step, g.Used.Step)
		case !samples.OfEvaluation(folder):
			e.Waiting += g.Sequences
			out.Queue++
		}
	}
	for _, e := range out.Environments {
		e.DropRate /= float64(e.GroupsIn)
	}
	slices.SortFunc(out.Environments, func(a, b *trajectories.EnvReport) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
