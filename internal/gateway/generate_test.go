package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// testdata/generate holds one folder a case: request.json as the client sends it, upstream.json as the engine must get
// it, engine.json as the engine answers, and reply.json as the client must get it. recorded_vllm_0.32 and
// recorded_sglang_0.5.17 hold what vLLM 0.32.0 and SGLang 0.5.17 really answered (SmolLM2-135M, CPU, float32); the
// others have vLLM's format, or that of older versions.
func TestGenerateTranslation(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/generate/*")
	if err != nil || len(cases) < 5 {
		t.Fatalf("found %d cases (%v)", len(cases), err)
	}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			read := func(name string) []byte {
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			q, err := translateRequest(read("request.json"), "policy")
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "request to the engine", q.body, read("upstream.json"))
			out, err := translateResponse(q, readCompletion(gjson.ParseBytes(read("engine.json")), q.shape()))
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "reply to the client", out, read("reply.json"))
		})
	}
}

func sameJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s is not JSON: %v\n%s", what, err, got)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatalf("golden %s: %v", what, err)
	}
	gb, _ := json.MarshalIndent(g, "", " ")
	wb, _ := json.MarshalIndent(w, "", " ")
	if string(gb) != string(wb) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, gb, wb)
	}
}

// Clients take the first entry of each position as the sampled token, whatever else is listed.
func TestSampledTokenComesFirst(t *testing.T) {
	t.Parallel()
	q, err := translateRequest([]byte(`{"prompt":[1],"logprobs":2}`), "")
	if err != nil {
		t.Fatal(err)
	}
	out, err := translateResponse(q, readCompletion(gjson.Parse(
		`{"choices":[{"index":0,"text":"x","token_ids":[7],"logprobs":{"token_logprobs":[-3],"tokens":["token_id:7"],"top_logprobs":[{"token_id:4":-0.1,"token_id:7":-3,"token_id:5":-2}]}}]}`), q.shape()))
	if err != nil {
		t.Fatal(err)
	}
	if raw := gjson.GetBytes(out, "logprobs.0.0.0").Raw; raw != `{"7":-3,"4":-0.1,"5":-2}` {
		t.Errorf("position is %s", raw)
	}
}

func TestGenerateRefusesBadRequests(t *testing.T) {
	t.Parallel()
	tests := []struct{ body, want string }{
		{`{`, "not JSON"},
		{`[]`, "want an object"},
		{`{}`, "no prompt"},
		{`{"prompt":[]}`, "no token ids"},
		{`{"prompt":""}`, "want a text"},
		{`{"prompt":[1,-2]}`, "entry 1"},
		{`{"prompt":[1,2.5]}`, "after entry 1"},
		{`{"prompt":[1,99999999999]}`, "entry 1"},
		{`{"prompt":[[1],[2]]}`, "entry 0"},
		{`{"prompt":{"prompt_token_ids":"x"}}`, ""},
		{`{"prompt":{"other":1}}`, "want a text"},
		{`{"prompt":[1],"n":0}`, "n is"},
		{`{"prompt":[1],"n":1.5}`, "n is"},
		{`{"prompt":[1],"n":"8"}`, "n is"},
		{`{"prompt":[1],"n":1e9}`, "n is"},
		{`{"prompt":[1],"logprobs":-1}`, "logprobs is"},
		{`{"prompt":[1],"top_k":1.5}`, "top_k is"},
		{`{"prompt":[1],"top_k":-2}`, "top_k is"},
		{`{"prompt":[1],"min_p":1.5}`, "min_p is"},
		{`{"prompt":[1],"repetition_penalty":0}`, "repetition_penalty is"},
		{`{"prompt":[1],"seed":"7"}`, "seed is"},
		{`{"input_ids":[1],"sampling_params":{"min_p":"x"}}`, "min_p is"},
		{`{"prompt":[1],"stream":true}`, "/generate cannot stream; use /v1"},
		{`{"input_ids":[1],"logprob_start_len":0}`, "logprob_start_len"},
		{`{"input_ids":[1],"sampling_params":{"n":-1}}`, "n is"},
	}
	for _, tc := range tests {
		_, err := translateRequest([]byte(tc.body), "")
		if tc.want == "" { // a text may hold anything
			if err != nil {
				t.Errorf("%s: %v", tc.body, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want something about %q", tc.body, err, tc.want)
		}
	}
}

// An incomplete answer must not become a training example.
func TestGenerateRefusesBadAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, answer, want string }{
		{"no choices", `{"error":"x"}`, "no choices"},
		{"too few", `{"choices":[{"index":0,"text":"a","token_ids":[1],"logprobs":{"token_logprobs":[-1]}}]}`,
			"2 completions asked for, 1"},
		{"lengths differ", `{"choices":[{"index":0,"text":"a","token_ids":[1,2],"logprobs":{"token_logprobs":[-1]}},{"index":1}]}`, "2 tokens but 1"},
		{"null", `{"choices":[{"index":0,"text":"a","token_ids":[1],"logprobs":{"token_logprobs":[null]}},{"index":1}]}`,
			"want a number"},
		{"no ids", `{"choices":[{"index":0,"text":"a","logprobs":{"token_logprobs":[-1],"tokens":["a"]}},{"index":1}]}`,
			"has no id"},
		{"no logprobs", `{"choices":[{"index":0,"text":"a","token_ids":[1]},{"index":1,"text":"b","token_ids":[1]}]}`,
			"0 log-probabilities"},
		{"text without tokens", `{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}`, "no token ids"},
	}
	q, err := translateRequest([]byte(`{"prompt":[1],"n":2,"logprobs":0}`), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		if _, err := translateResponse(q, readCompletion(gjson.Parse(tc.answer), q.shape())); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want something about %q", tc.name, err, tc.want)
		}
	}
}

func TestGenerateOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 4}, e)
	r := post(t, g, "/generate", `{"prompt":{"prompt_token_ids":[1,2,3]},"logprobs":0,"n":3,"max_tokens":8,"temperature":1.0}`)
	if r.status != 200 || !gjson.Valid(r.body) {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if gjson.Get(r.body, "policy_version").Int() != 4 || r.header.Get(HeaderVersion) != "4" {
		t.Errorf("not stamped: %v %s", r.header, r.body)
	}
	for i, ids := range [][]int{{10, 20, 2}, {11, 21, 2}, {12, 22, 2}} {
		rec, found, _ := g.Lookup(append([]int{1, 2, 3}, ids...))
		if !found || rec.Version != 4 || rec.Logprobs[0] != -0.5 {
			t.Errorf("completion %d: %+v %v", i, rec, found)
		}
	}
	if path := e.seen()[0].path; path != "/v1/completions" {
		t.Errorf("the engine was asked at %s", path)
	}
	if r := post(t, g, "/generate", `{"prompt":[]}`); r.status != 400 {
		t.Errorf("a bad request got %d", r.status)
	}
}

// The translator refuses a request or makes valid JSON with its prompt; for any answer of an engine, the result is an
// error or valid JSON whose tokens and log-probabilities agree.
func FuzzGenerate(f *testing.F) {
	dirs, _ := filepath.Glob("testdata/generate/*")
	for _, dir := range dirs {
		req, _ := os.ReadFile(filepath.Join(dir, "request.json"))
		ans, _ := os.ReadFile(filepath.Join(dir, "engine.json"))
		f.Add(req, ans)
	}
	f.Fuzz(func(t *testing.T, request, answer []byte) {
		q, err := translateRequest(request, "m")
		if err != nil {
			return
		}
		if !json.Valid(q.body) {
			t.Fatalf("made %s of %s", q.body, request)
		}
		if !json.Valid(answer) { // engines do answer in JSON; otherwise the bytes are passed through
			return
		}
		done := readCompletion(gjson.ParseBytes(answer), q.shape())
		out, err := translateResponse(q, done)
		if err != nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("made %s of %s", out, answer)
		}
		if !q.logprobs || q.sglang {
			return
		}
		var r struct {
			Logprobs [][][]map[string]json.Number `json:"logprobs"`
			IDs      [][]int64                    `json:"token_ids"`
		}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if len(r.Logprobs) != q.n || len(r.IDs) != q.n || len(done.choices) == 0 {
			t.Fatalf("%d and %d completions, want %d", len(r.Logprobs), len(r.IDs), q.n)
		}
		for i := range r.IDs {
			if len(r.IDs[i]) != len(r.Logprobs[i]) {
				t.Fatalf("completion %d: %d tokens, %d log-probabilities", i, len(r.IDs[i]), len(r.Logprobs[i]))
			}
		}
	})
}

// Bodies are stamped by splicing; the rest of them must be unchanged.
func FuzzSplice(f *testing.F) {
	for _, s := range []string{`{}`, ` { "a" : 1 }`, `[1]`, `{"a":{}}`, `"x"`, ``, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		out := stamp(body, 3, 4)
		if !json.Valid(body) {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%s became %s", body, out)
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(body, &m) == nil && m != nil && gjson.GetBytes(out, "policy_version_max").Int() != 4 {
			t.Fatalf("%s became %s without a stamp", body, out)
		}
	})
}

// Answers whose choices are given several times stay valid whatever they hold.
func FuzzRepeatChoices(f *testing.F) {
	for _, s := range []string{`{"choices":[{"index":0,"text":"a"}]}`, `{"choices":[]}`,
		`{"choices":[{"text":"index"},{"index":0}],"b":1}`, `{"choices":{"index":0}}`, `{}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if n < 2 || n > 50 || !json.Valid(body) {
			return
		}
		out := repeatChoices(body, n)
		if !json.Valid(out) {
			t.Fatalf("%s became %s", body, out)
		}
	})
}

// Settings of sampling reach the engine, in the form of either client and from a session.
func TestSamplingReachesTheEngine(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	const settings = `"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.05,"repetition_penalty":1.1`
	for _, c := range []struct{ path, body string }{
		{"/generate", `{"prompt":{"prompt_token_ids":[1,2]},"max_tokens":3,"seed":7,` + settings + `}`},
		{"/generate", `{"input_ids":[1,2],"sampling_params":{"max_new_tokens":3,"sampling_seed":7,` + settings + `}}`},
		{"/v1/completions", `{"prompt":[1,2],"max_tokens":3,"seed":7,` + settings + `}`},
	} {
		r := post(t, g, c.path, c.body)
		seen := e.seen()
		got := gjson.Parse(seen[len(seen)-1].body)
		for name, want := range map[string]float64{"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
			"repetition_penalty": 1.1, "max_tokens": 3, "seed": 7} {
			if got.Get(name).Num != want {
				t.Errorf("%s %s (%d): the engine got %s = %v, want %v", c.path, c.body, r.status, name, got.Get(name), want)
			}
		}
	}
}
