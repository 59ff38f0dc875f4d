package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// switching is an engine that streams one token a piece and waits for the test before each but the first.
func switching(e *fakeEngine, pieces ...string) (next chan struct{}) {
	next = make(chan struct{})
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		for i, piece := range append(pieces, "[DONE]") {
			if i > 0 {
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
			_, _ = io.WriteString(w, "data: "+piece+"\n\n")
			_ = out.Flush()
		}
	})
	return next
}

func token(id int, more string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"token_ids":[%d],"prompt_token_ids":[1,2],"logprobs":{"token_logprobs":[-0.5]}%s}]}`, id, more)
}

// streamed asks for a stream and calls between after each event.
func streamed(t *testing.T, g *Gateway, between func(event int)) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/v1/completions",
		strings.NewReader(`{"stream":true,"prompt":[1,2],"return_token_ids":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	buf := make([]byte, 4096)
	for i := 0; ; i++ {
		if _, err := resp.Body.Read(buf); err != nil {
			return
		}
		between(i)
	}
}

// Generation continues across an update: the record says which version sampled which token, the older one if it is
// uncertain.
func TestStreamAcrossAnUpdateHasTokenVersions(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := &sleepers{}
	c := d.config()
	c.Version = 2
	g := start(t, c, e)
	atOnce(t, g, e)
	next := switching(e, token(5, ""), token(6, ""), token(7, ""), token(8, ""))
	streamed(t, g, func(event int) {
		if event == 1 {
			if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 3},
				Mode: ModeKeep}); err != nil {
				t.Error(err)
			}
		}
		if event < 4 {
			next <- struct{}{}
		}
	})
	eventually(t, "the record", func() bool { _, found, _ := g.Lookup([]int{1, 2, 5, 6, 7, 8}); return found })
	rec, _, _ := g.Lookup([]int{1, 2, 5, 6, 7, 8})
	// Token 7 arrived after the update, but may have been sent before: it counts as sampled by the previous version.
	if got := fmt.Sprint(rec.Versions); rec.Version != 2 || rec.VersionMax != 3 || got != "[{2 0 3} {3 3 4}]" {
		t.Errorf("recorded %d to %d, %s", rec.Version, rec.VersionMax, got)
	}
}

// The versions that the engine reports for each token are exact, and replace the gateway's own.
func TestVersionsReportedByTheEngineAreUsed(t *testing.T) {
	t.Parallel()
	const spans = `,"weight_versions":[{"version":"2","start":0,"end":1},{"version":"3","start":1,"end":2}]`
	t.Run("in a stream", func(t *testing.T) {
		t.Parallel()
		e := newEngine(t)
		g := start(t, Config{Version: 3}, e)
		next := switching(e, token(5, ""), token(6, spans))
		streamed(t, g, func(event int) {
			if event < 2 {
				next <- struct{}{}
			}
		})
		eventually(t, "the record", func() bool { _, found, _ := g.Lookup([]int{1, 2, 5, 6}); return found })
		if rec, _, _ := g.Lookup([]int{1, 2, 5, 6}); fmt.Sprint(rec.Versions) != "[{2 0 1} {3 1 2}]" {
			t.Errorf("recorded %+v", rec)
		}
	})
	t.Run("in one answer", func(t *testing.T) {
		t.Parallel()
		e := newEngine(t)
		g := start(t, Config{Version: 9}, e)
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"text":"x","token_ids":[5,6],"prompt_token_ids":[1,2],"logprobs":{"token_logprobs":[-1,-2]}`+spans+`}]}`)
		})
		r := post(t, g, "/v1/completions", `{"prompt":[1,2],"logprobs":0,"return_token_ids":true}`)
		if low, high := gjson.Get(r.body, "policy_version").Int(), gjson.Get(r.body, "policy_version_max").Int(); low != 2 ||
			high != 3 {
			t.Errorf("the answer says %d to %d, want what the engine says, 2 to 3: %s", low, high, r.body)
		}
		if rec, _, _ := g.Lookup([]int{1, 2, 5, 6}); fmt.Sprint(rec.Version, rec.VersionMax,
			rec.Versions) != "2 3 [{2 0 1} {3 1 2}]" {
			t.Errorf("recorded %+v", rec)
		}
	})
}

func TestInvalidSpansAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a label that is none": `[{"version":"default","start":0,"end":2}]`,
		"negative":             `[{"version":"-1","start":0,"end":2}]`,
		"a hole":               `[{"version":"1","start":0,"end":1},{"version":"2","start":2,"end":2}]`,
		"too many":             `[{"version":"1","start":0,"end":3}]`,
		"no list":              `{}`, "empty": `[]`,
	} {
		answer := `{"choices":[{"token_ids":[5,6],"weight_versions":` + text + `,"logprobs":{"token_logprobs":[-1,-2]}}]}`
		done := readCompletion(gjson.Parse(answer), shape{choices: true})
		if done.bad != nil || done.choices[0].spans != nil || done.spanLow != UnknownVersion {
			t.Errorf("%s: %+v", name, done)
		}
	}
}
