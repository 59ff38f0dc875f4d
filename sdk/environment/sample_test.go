package environment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestReadSample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, problem string }{
		"ids and log-probabilities": {`{"policy_version":3,"policy_version_max":4,"choices":[{"text":"x","finish_reason":"stop","token_ids":[5,6],"prompt_token_ids":[1],"logprobs":{"token_logprobs":[-1,-2]}}]}`, ""},
		"ids as names":              {`{"prompt_token_ids":[1],"choices":[{"text":"x","logprobs":{"tokens":["token_id:5","token_id:6"],"token_logprobs":[-1,-2]}}]}`, ""},
		"chat":                      {`{"prompt_token_ids":[1],"choices":[{"message":{"content":"x"},"token_ids":[5,6],"logprobs":{"content":[{"token":"a","logprob":-1},{"token":"b","logprob":-2}]}}]}`, ""},
		"no ids":                    {`{"prompt_token_ids":[1],"choices":[{"text":"x","logprobs":{"tokens":["a","b"],"token_logprobs":[-1,-2]}}]}`, "0 token ids"},
		"no log-probabilities": {`{"prompt_token_ids":[1],"choices":[{"text":"x","token_ids":[5,6]}]}`,
			"0 log-probabilities"},
		"one is null":   {`{"prompt_token_ids":[1],"choices":[{"text":"x","token_ids":[5,6],"logprobs":{"token_logprobs":[-1,null]}}]}`, "no log-probability"},
		"fewer of them": {`{"prompt_token_ids":[1],"choices":[{"text":"x","token_ids":[5,6],"logprobs":{"token_logprobs":[-1]}}]}`, "2 token ids and 1"},
		"no prompt": {`{"choices":[{"text":"x","token_ids":[5,6],"logprobs":{"token_logprobs":[-1,-2]}}]}`,
			"no prompt_token_ids"},
		"too few choices": {`{"choices":[]}`, "asked for 1, got 0"},
		"no JSON":         {`<html>`, "read the completions"},
	} {
		s, err := readSample([]byte(c.body), 1)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %q", name, err, c.problem)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case s.completions[0].Text != "x" || s.completions[0].Tokens[1] != 6 || s.completions[0].Logprobs[1] != -2 ||
			s.prompt[0] != 1:
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestAnAnswerWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; _, err = io.WriteString(w, strings.Repeat(" ", 1<<10)) {
		}
	}))
	defer server.Close()
	s := newSampler(outputs.Inference{BaseURL: server.URL}, "", time.Minute)
	defer s.http.CloseIdleConnections()
	s.most = 1 << 20
	if _, err := s.draw(t.Context(), question{text: "x"}, sampling{N: 1}); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("got %v, expected that the answer is too large", err)
	}
	// The group is lost at once: the answer is as large when it is asked for again.
	_, err := (&rollouts{sampler: s}).draw(t.Context(), question{text: "x"}, sampling{N: 3})
	var lost *unscored
	if !errors.As(err, &lost) || !strings.Contains(lost.text, "3 completions has more than 1 MiB: lower group_size") {
		t.Errorf("got %v, expected a lost group", err)
	}
}

// Weights changed during a completion: the group says which version sampled which token, and its range covers all.
func TestGroupsCarryTheVersionsOfTheirTokens(t *testing.T) {
	t.Parallel()
	const answer = `{"policy_version":3,"policy_version_max":4,"prompt_token_ids":[1,2],"choices":[
		{"text":"a","token_ids":[5,6,7],"logprobs":{"token_logprobs":[-1,-2,-3]},"weight_versions":%s},
		{"text":"b","token_ids":[8],"logprobs":{"token_logprobs":[-1]},"weight_versions":[{"version":"4","start":0,"end":1}]}]}`
	group := func(spans string) *trajectory.Group {
		t.Helper()
		s, err := readSample(fmt.Appendf(nil, answer, spans), 2)
		if err != nil {
			t.Fatal(err)
		}
		g, err := s.rolled(Task{Prompt: "p"}, scored(0, 1)).group(Task{}, sampling{})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := group(`[{"version":"3","start":0,"end":1},{"version":"4","start":1,"end":3}]`)
	if v := g.PolicyVersion; v == nil || v.Min != 3 || v.Max != 4 {
		t.Errorf("policy_version is %+v, want 3 to 4", v)
	}
	data, err := json.Marshal(g.Overrides)
	if want := `[{"policy_versions":[{"version":3,"start":2,"end":3},{"version":4,"start":3,"end":5}]},{}]`; err != nil ||
		string(data) != want {
		t.Errorf("overrides are %s (%v), want %s", data, err, want)
	}
	for name, spans := range map[string]string{
		"one version": `[{"version":"3","start":0,"end":3}]`,
		"a hole":      `[{"version":"3","start":0,"end":1},{"version":"4","start":2,"end":3}]`,
		"too short":   `[{"version":"3","start":0,"end":1},{"version":"4","start":1,"end":2}]`,
		"no numbers":  `[{"version":"a","start":0,"end":1},{"version":"4","start":1,"end":3}]`,
		"nothing":     `null`, "something else": `"3"`,
	} {
		if g := group(spans); g.Overrides != nil || g.PolicyVersion.Min != 3 {
			t.Errorf("%s: overrides %v, versions %+v; want the range alone", name, g.Overrides, g.PolicyVersion)
		}
	}
}

// FuzzReadSample: an answer of a server is refused or can be trained on.
func FuzzReadSample(f *testing.F) {
	f.Add([]byte(`{"prompt_token_ids":[1],"choices":[{"text":"x","token_ids":[5,6],"logprobs":{"token_logprobs":[-1,-2]}}]}`))
	f.Add([]byte(`{"choices":[{"logprobs":{"tokens":["token_id:-1"],"content":[{}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readSample(data, 1)
		if err != nil {
			return
		}
		g, err := s.rolled(Task{Prompt: "p"}, scored(0)).group(Task{}, sampling{})
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Tokens[0]) != len(g.Masks[0]) || len(g.Tokens[0]) != len(g.InferenceLogprobs[0]) ||
			len(g.Tokens[0]) == 0 {
			t.Fatalf("a group that cannot be trained on: %+v", g)
		}
	})
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"environment.letters.a": "a", `environment.letters.a["x.y"]`: `a["x.y"]`,
		"module.m.environment.letters.b[2]": "b[2]",
	} {
		if got := RegisteredName(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

func scored(values ...float64) []Scored {
	out := make([]Scored, len(values))
	for i, v := range values {
		out[i].Score = v
	}
	return out
}
