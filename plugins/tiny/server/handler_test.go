package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

func testServer(t testing.TB, o HandlerOptions) (*Engine, *httptest.Server) {
	t.Helper()
	e := testEngine(t, Options{Seed: 1})
	if o.Model == "" {
		o.Model = "tiny"
	}
	s := httptest.NewServer(NewHandler(e, o))
	t.Cleanup(s.Close)
	return e, s
}

// call posts a body and decodes the answer.
func call(t testing.TB, s *httptest.Server, route, body string, into any) int {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(testContext(t), method, s.URL+route, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s answered %d with %q: %v", route, answer.StatusCode, data, err)
	}
	return answer.StatusCode
}

type completionsAnswer struct {
	Object     string
	Model      string
	Version    int64 `json:"policy_version"`
	VersionMax int64 `json:"policy_version_max"`
	Choices    []struct {
		Index    int
		Text     string
		Finish   string  `json:"finish_reason"`
		Stop     string  `json:"stop_reason"`
		TokenIDs []int32 `json:"token_ids"`
		Prompt   []int32 `json:"prompt_token_ids"`
		LogProbs *struct {
			Tokens  []string             `json:"tokens"`
			Values  []*float64           `json:"token_logprobs"`
			Top     []map[string]float64 `json:"top_logprobs"`
			Offsets []int                `json:"text_offset"`
		} `json:"logprobs"`
		PromptLogProbs []map[string]struct {
			LogProb float64
			Rank    int
		} `json:"prompt_logprobs"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	var got completionsAnswer
	code := call(t, s, "/v1/completions",
		`{"model":"tiny","prompt":"12+3=","n":5,"max_tokens":9,"seed":4,"logprobs":2,"return_token_ids":true,"unknown_field":1}`, &got)
	if code != 200 || len(got.Choices) != 5 || got.Object != "text_completion" || got.Model != "tiny" ||
		got.Version != 1 || got.VersionMax != 1 {
		t.Fatalf("%d %+v", code, got)
	}
	prompt, _ := e.Tokenizer().Encode("12+3=")
	completion := 0
	for i, c := range got.Choices {
		completion += len(c.TokenIDs)
		if c.Index != i || !slices.Equal(c.Prompt, prompt) || c.Text != e.Tokenizer().Decode(c.TokenIDs) {
			t.Errorf("choice %d: %+v", i, c)
		}
		if ended := c.TokenIDs[len(c.TokenIDs)-1] == lm.End; (c.Finish == "stop") != ended ||
			(c.Finish == "length" && len(c.TokenIDs) != 9) {
			t.Errorf("choice %d finished by %q after %d tokens", i, c.Finish, len(c.TokenIDs))
		}
		want, _, err := e.LogProbs(append(slices.Clone(prompt), c.TokenIDs...))
		if err != nil {
			t.Fatal(err)
		}
		for k := range c.TokenIDs {
			name := e.Tokenizer().Name(c.TokenIDs[k])
			if c.LogProbs.Tokens[k] != name || *c.LogProbs.Values[k] != want[5+k] || c.LogProbs.Top[k][name] != want[5+k] ||
				len(c.LogProbs.Top[k]) < 2 {
				t.Fatalf("choice %d, token %d: log-probabilities %+v, want %v", i, k, c.LogProbs, want[5+k])
			}
		}
	}
	if got.Usage.Prompt != 5 || got.Usage.Completion != completion || got.Usage.Total != completion+5 {
		t.Errorf("usage %+v for %d tokens", got.Usage, completion)
	}
	var ids completionsAnswer
	call(t, s, "/v1/completions", fmt.Sprintf(
		`{"prompt":%s,"n":5,"max_tokens":9,"seed":4,"logprobs":0,"return_tokens_as_token_ids":true}`, mustJSON(prompt)), &ids)
	for i, c := range ids.Choices {
		if c.Text != got.Choices[i].Text || c.TokenIDs != nil {
			t.Errorf("a prompt of ids gives %+v, the text %+v", c, got.Choices[i])
		}
		if want := fmt.Sprintf("token_id:%d", got.Choices[i].TokenIDs[0]); c.LogProbs.Tokens[0] != want ||
			len(c.LogProbs.Top[0]) != 1 {
			t.Errorf("log-probabilities by id: %+v, want first %s", c.LogProbs, want)
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestEchoAndPromptLogProbs(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	prompt, _ := e.Tokenizer().Encode("12+3=")
	want, _, _ := e.LogProbs(prompt)
	var got completionsAnswer
	call(t, s, "/v1/completions", `{"prompt":"12+3=","max_tokens":0,"echo":true,"logprobs":0,"prompt_logprobs":1}`, &got)
	c := got.Choices[0]
	if c.Text != "12+3=" || len(c.LogProbs.Values) != 5 || c.LogProbs.Values[0] != nil || len(c.PromptLogProbs) != 5 ||
		c.PromptLogProbs[0] != nil {
		t.Fatalf("scoring only: %+v", c)
	}
	for i := 1; i < 5; i++ {
		if *c.LogProbs.Values[i] != want[i] || c.PromptLogProbs[i][fmt.Sprint(prompt[i])].LogProb != want[i] {
			t.Errorf("prompt token %d: %v and %v, want %v", i, *c.LogProbs.Values[i], c.PromptLogProbs[i], want[i])
		}
	}
	call(t, s, "/v1/completions", `{"prompt":"12+3=","max_tokens":3,"temperature":0,"echo":true,"logprobs":0}`, &got)
	if c := got.Choices[0]; !strings.HasPrefix(c.Text, "12+3=") || len(c.LogProbs.Values) < 6 ||
		c.LogProbs.Offsets[5] != 5 {
		t.Errorf("echo: %+v", c)
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	var got struct {
		Object  string
		Prompt  []int32 `json:"prompt_token_ids"`
		Choices []struct {
			Message  struct{ Role, Content string }
			TokenIDs []int32 `json:"token_ids"`
			LogProbs struct {
				Content []struct {
					Token   string
					LogProb float64
					Top     []struct{ LogProb float64 } `json:"top_logprobs"`
				}
			}
		}
	}
	code := call(t, s, "/v1/chat/completions",
		`{"messages":[{"role":"system","content":"add"},{"role":"user","content":[{"type":"text","text":"1+2="}]}],
		"n":2,"max_completion_tokens":6,"seed":9,"logprobs":true,"top_logprobs":3,"return_token_ids":true}`, &got)
	if code != 400 { // "\n" is not in the test alphabet: the error must name the template's line break
		t.Fatalf("code %d", code)
	}
	code = call(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"1+2="}]}],
		"n":2,"max_completion_tokens":6,"seed":9,"logprobs":true,"top_logprobs":3,"return_token_ids":true}`, &got)
	prompt, _ := e.Tokenizer().Encode("1+2=")
	if code != 200 || len(got.Choices) != 2 || !slices.Equal(got.Prompt, prompt) || got.Object != "chat.completion" {
		t.Fatalf("%d %+v", code, got)
	}
	for _, c := range got.Choices {
		if c.Message.Role != "assistant" || c.Message.Content != e.Tokenizer().Decode(c.TokenIDs) ||
			len(c.LogProbs.Content) != len(c.TokenIDs) || len(c.LogProbs.Content[0].Top) != 3 {
			t.Errorf("choice %+v", c)
		}
	}
	if got, err := flatten([]message{{Role: "system"}, {Role: "user", Content: "a"}, {Role: "user", Content: "b"},
		{Role: "assistant", Content: "c"}, {Role: "user", Content: "d"}}, nil); err != nil || got != "a\nbc\nd" {
		t.Error("the chat template does not put contents on lines, answers after what they answer")
	}
}

func TestGenerateRoute(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	prompt, _ := e.Tokenizer().Encode("7+5=")
	for _, body := range []string{fmt.Sprintf(`{"prompt":{"prompt_token_ids":%s}`, mustJSON(prompt)), `{"prompt":"7+5="`,
		`{"prompt":["7+5="]`, fmt.Sprintf(`{"prompt":[%s]`, mustJSON(prompt))} {
		var got struct {
			Text     []string
			TokenIDs [][]int32                `json:"token_ids"`
			LogProbs [][]map[string]float64   `json:"-"`
			Raw      [][][]map[string]float64 `json:"logprobs"`
			Finish   []string                 `json:"finish_reasons"`
			Prompt   []int32                  `json:"prompt_token_ids"`
		}
		code := call(t, s, "/generate",
			body+`,"n":4,"max_tokens":5,"temperature":1.0,"top_p":1.0,"stop":["a","b"],"logprobs":0}`, &got)
		if code != 200 || len(got.Text) != 4 || len(got.TokenIDs) != 4 || len(got.Finish) != 4 ||
			!slices.Equal(got.Prompt, prompt) {
			t.Fatalf("%d %+v", code, got)
		}
		for i, tokens := range got.TokenIDs {
			want, _, _ := e.LogProbs(append(slices.Clone(prompt), tokens...))
			for k, id := range tokens {
				if v, ok := got.Raw[i][k][0][fmt.Sprint(id)]; !ok || v != want[4+k] {
					t.Errorf("completion %d, token %d: %v, want %v", i, k, got.Raw[i][k], want[4+k])
				}
			}
		}
	}
}

// readEvents collects a stream's events and checks the end of the stream.
func readEvents(t testing.TB, s *httptest.Server, route, body string) []string {
	t.Helper()
	r, err := http.NewRequestWithContext(testContext(t), http.MethodPost, s.URL+route, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type %q, status %d", got, answer.StatusCode)
	}
	var events []string
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
	if len(events) == 0 || events[len(events)-1] != "[DONE]" {
		t.Fatalf("stream did not end with [DONE]: %q", events)
	}
	return events[:len(events)-1]
}

func TestStreamingSaysTheSameAsAWholeAnswer(t *testing.T) {
	t.Parallel()
	_, s := testServer(t, HandlerOptions{})
	const query = `{"prompt":"12+3=","n":6,"max_tokens":12,"seed":8,"stop":["ab","7","1+"],"return_token_ids":true,"logprobs":1`
	var whole completionsAnswer
	call(t, s, "/v1/completions", query+"}", &whole)
	texts, tokens, finish := make([]string, 6), make([][]int32, 6), make([]string, 6)
	var last completionsAnswer
	for _, e := range readEvents(t, s, "/v1/completions",
		query+`,"stream":true,"stream_options":{"include_usage":true}}`) {
		last = completionsAnswer{}
		if err := json.Unmarshal([]byte(e), &last); err != nil {
			t.Fatal(err)
		}
		for _, c := range last.Choices {
			texts[c.Index] += c.Text
			tokens[c.Index] = append(tokens[c.Index], c.TokenIDs...)
			finish[c.Index] += c.Finish
			if len(c.LogProbs.Values) != 1 || last.Version != 1 {
				t.Errorf("event %s", e)
			}
		}
	}
	for i, c := range whole.Choices {
		if texts[i] != c.Text || !slices.Equal(tokens[i], c.TokenIDs) || finish[i] != c.Finish {
			t.Errorf("choice %d: streamed %q %v %q, whole %q %v %q", i, texts[i], tokens[i], finish[i], c.Text, c.TokenIDs,
				c.Finish)
		}
	}
	if last.Usage.Total != whole.Usage.Total || len(last.Choices) != 0 {
		t.Errorf("last event %+v, want the usage %+v", last, whole.Usage)
	}
	roles := 0
	for _, e := range readEvents(t, s, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"1+"}],"n":2,"max_tokens":4,"stream":true}`) {
		roles += strings.Count(e, `"role":"assistant"`)
		if !strings.Contains(e, `"object":"chat.completion.chunk"`) || !strings.Contains(e, `"delta"`) {
			t.Errorf("chat event %s", e)
		}
	}
	if roles != 2 {
		t.Errorf("%d events name the role, want one a choice", roles)
	}
	for i, e := range readEvents(t, s, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"1+"}],"max_tokens":4,"stream":true,"return_token_ids":true}`) {
		if strings.Contains(e, `"prompt_token_ids":[`) != (i == 0) {
			t.Errorf("event %d: the token ids of the prompt belong into the first event alone: %s", i, e)
		}
	}
}

func TestTokenRoutesAndModels(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	var tokens struct {
		Tokens []int32
		Count  int
		Max    int `json:"max_model_len"`
	}
	call(t, s, "/tokenize", `{"prompt":"1+2"}`, &tokens)
	if tokens.Count != 3 || tokens.Max != 24 {
		t.Errorf("tokenize: %+v", tokens)
	}
	var text struct{ Prompt string }
	call(t, s, "/detokenize", `{"tokens":`+mustJSON(tokens.Tokens)+`}`, &text)
	if text.Prompt != "1+2" {
		t.Errorf("detokenize: %+v", text)
	}
	var logProbs struct {
		LogProbs []float64 `json:"logprobs"`
		Version  int64     `json:"policy_version"`
	}
	probe := `{"token_ids":` + mustJSON(tokens.Tokens) + `}`
	call(t, s, "/logprobs", probe, &logProbs)
	want, _, _ := e.LogProbs(tokens.Tokens)
	if !slices.Equal(logProbs.LogProbs, want) || logProbs.Version != 1 {
		t.Errorf("logprobs: %+v, want %v", logProbs, want)
	}
	if err := e.Swap(testParams(t, 2), 7); err != nil {
		t.Fatal(err)
	}
	call(t, s, "/logprobs", probe, &logProbs)
	if logProbs.Version != 7 || math.Abs(logProbs.LogProbs[1]-want[1]) < 1e-9 {
		t.Errorf("logprobs do not show the new weights: %+v, before %v", logProbs, want)
	}
	var models struct {
		Data []struct {
			ID      string
			Version int64 `json:"policy_version"`
			Length  int   `json:"max_model_len"`
		}
	}
	call(t, s, "/v1/models", "", &models)
	if len(models.Data) != 1 || models.Data[0].ID != "tiny" || models.Data[0].Version != 7 || models.Data[0].Length != 24 {
		t.Errorf("models: %+v", models)
	}
	var health struct {
		Status  string
		Version int64 `json:"policy_version"`
	}
	if code := call(t, s, "/health", "", &health); code != 200 || health.Status != "ok" || health.Version != 7 {
		t.Errorf("health: %d %+v", code, health)
	}
}

func TestErrorsAreClear(t *testing.T) {
	t.Parallel()
	_, s := testServer(t, HandlerOptions{})
	for _, test := range []struct {
		route, body string
		code        int
		want        string
	}{
		{"/v1/completions", `{"prompt":"3 € 4"}`, 400, "'€' at byte 2"},
		{"/v1/completions", `{"prompt":`, 400, "not a JSON object"},
		{"/v1/completions", `{"prompt":"1","n":"two"}`, 400, "n: want int"},
		{"/v1/completions", `{}`, 400, "want a text or token ids"},
		{"/v1/completions", `{"prompt":["1","2"]}`, 400, "several prompts"},
		{"/v1/completions", `{"prompt":[[["1"]]]}`, 400, "several prompts"},
		{"/v1/completions", `{"prompt":null}`, 400, "got none"},
		{"/v1/completions", `{"prompt":[4,400]}`, 400, "position 1"},
		{"/v1/completions", `{"prompt":"1","n":0}`, 400, "n: want 1"},
		{"/v1/completions", `{"prompt":"1","n":100000}`, 400, "n: want 1"},
		{"/v1/completions", `{"prompt":"1","max_tokens":400}`, 400, "context"},
		{"/v1/completions", `{"prompt":"111111111111111111111111"}`, 400, "no room"},
		{"/v1/completions", `{"prompt":"1","temperature":-1}`, 400, "temperature"},
		{"/v1/completions", `{"prompt":"1","top_p":0}`, 400, "top_p"},
		{"/v1/completions", `{"prompt":"1","top_k":-2}`, 400, "top_k: want 1 or more"},
		{"/v1/completions", `{"prompt":"1","min_p":2}`, 400, "min_p: want 0 to 1"},
		{"/v1/completions", `{"prompt":"1","repetition_penalty":1.2}`, 400, "repetition_penalty is not offered"},
		{"/v1/completions", `{"prompt":"1","logit_bias":{"5":1}}`, 400, "logit_bias"},
		{"/v1/completions", `{"prompt":"1","logprobs":50}`, 400, "logprobs"},
		{"/v1/completions", `{"prompt":"1","stop":[""]}`, 400, "stop"},
		{"/v1/completions", `{"prompt":"1","model":"gpt-4"}`, 404, `only "tiny"`},
		{"/v1/completions", `{"prompt":"1","stream":true,"echo":true}`, 400, "stream"},
		{"/v1/completions", `{"prompt":"1","stream":true,"n":0}`, 400, "n: want 1"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "image_url"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"tools":{}}`, 400, "tools: want a list"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"tool_choice":"required"}`, 400, "tool_choice"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"tool_choice":{"type":"function"}}`, 400, "tool_choice"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"response_format":{"type":"json_object"}}`, 400, "response_format"},
		{"/v1/completions", `{"prompt":"1","response_format":{"type":"json_object"}}`, 400, "response_format"},
		{"/generate", `{"prompt":"1","stream":true}`, 400, "stream"},
		{"/tokenize", `{}`, 400, "prompt or messages"},
		{"/detokenize", `{"tokens":[-1]}`, 400, "position 0"},
		{"/logprobs", `{"token_ids":[]}`, 400, "at least one token"},
		{"/v1/embeddings", `{}`, 404, "/v1/completions"},
		{"/tokenize", `{"prompt":"` + strings.Repeat("1", maxBody) + `"}`, 413, "larger than"},
	} {
		var got struct {
			Error struct {
				Message, Type string
				Code          int
			}
		}
		shown := test.body[:min(len(test.body), 60)]
		if code := call(t, s, test.route, test.body, &got); code != test.code || got.Error.Code != code ||
			got.Error.Type == "" {
			t.Errorf("%s %s: status %d, error %+v; want %d", test.route, shown, code, got.Error, test.code)
		}
		if !strings.Contains(got.Error.Message, test.want) {
			t.Errorf("%s %s: message %q does not say %q", test.route, shown, got.Error.Message, test.want)
		}
	}
}

func TestAPIKey(t *testing.T) {
	t.Parallel()
	_, s := testServer(t, HandlerOptions{APIKey: "k3y"})
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "k3y": 401, "Bearer k3y": 200} {
		r, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("authorization %q: status %d, want %d", header, answer.StatusCode, want)
		}
	}
	var health any
	if code := call(t, s, "/health", "", &health); code != 200 {
		t.Errorf("health needs no key; got %d", code)
	}
}

func TestClosedEngineAnswers503(t *testing.T) {
	t.Parallel()
	e, s := testServer(t, HandlerOptions{})
	e.Close()
	for _, route := range []string{"/v1/completions", "/health"} {
		body := `{"prompt":"1"}`
		if route == "/health" {
			body = ""
		}
		var got struct{ Error struct{ Message string } }
		if code := call(t, s, route, body, &got); code != 503 || !strings.Contains(got.Error.Message, "stopped") {
			t.Errorf("%s: %d %+v", route, code, got)
		}
	}
}

// FuzzCompletions: no body crashes the server, and each gets a whole answer or an error. The model is the smallest
// possible, and few sequences may wait, so that an execution costs little more than reading the request.
func FuzzCompletions(f *testing.F) {
	params, err := lm.NewParams(lm.Config{Vocabulary: 21, Width: 2, Layers: 1, Heads: 1, Hidden: 2, Context: 10}, 1)
	if err != nil {
		f.Fatal(err)
	}
	o := Options{MaxBatch: 4, MaxWaiting: 4, Shards: 1}
	e, err := New(&lm.Checkpoint{Params: params, Alphabet: testAlphabet}, 1, o)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.Close)
	h := NewHandler(e, HandlerOptions{Model: "tiny"})
	routes := []string{"/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize", "/logprobs"}
	for i := range routes {
		route := uint8(i)
		f.Add(route, []byte(`{"prompt":"1+2=","n":2,"max_tokens":3,"logprobs":1,"echo":true,"prompt_logprobs":2,"stop":"3"}`))
		f.Add(route, []byte(`{"prompt":[4,5],"stream":true,"stop":["a","ab"],"temperature":0.5,"top_p":0.5}`))
		f.Add(route,
			[]byte(
				`{"messages":[{"role":"user","content":"1"}],"prompt":{"prompt_token_ids":[]},"tokens":[4],"token_ids":[4,5]}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		route := routes[int(which)%len(routes)]
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, route, bytes.NewReader(body)))
		busy := w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), ErrBusy.Error())
		if w.Code != 200 && (w.Code < 400 || w.Code >= 500) && !busy {
			t.Fatalf("%s answered %d: %s", route, w.Code, w.Body)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s answered invalid JSON: %s", route, w.Body)
		}
	})
}
