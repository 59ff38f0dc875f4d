package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestPassThroughIsStampedAndRecorded(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 7}, e)
	r := post(t, g, "/v1/completions", `{"model":"policy","prompt":[1,2,3],"logprobs":0,"return_token_ids":true}`)
	if r.status != 200 || !gjson.Valid(r.body) {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if v := gjson.Get(r.body, "policy_version").Int(); v != 7 {
		t.Errorf("policy_version in the body is %d, want 7", v)
	}
	if h := r.header.Get(HeaderVersion) + "-" + r.header.Get(HeaderVersionMax); h != "7-7" {
		t.Errorf("versions in the header are %s, want 7-7", h)
	}
	if text := gjson.Get(r.body, "choices.0.text").Str; text != "a0" {
		t.Errorf("text is %q, want a0", text)
	}
	rec, found, ambiguous := g.Lookup([]int{1, 2, 3, 10, 20, 2})
	if !found || ambiguous || rec.PromptTokens != 3 || rec.Version != 7 || len(rec.Logprobs) != 3 ||
		rec.Logprobs[1] != -0.25 {
		t.Errorf("looked up %+v, %v, %v", rec, found, ambiguous)
	}
	got := e.seen()[0]
	if got.auth != "Bearer engine-key" {
		t.Errorf("the engine got %q for a key, want its own and never the client's", got.auth)
	}
}

func TestAuth(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	const body = `{"prompt":"x"}`
	tests := []struct {
		name, path, token string
		want              int
	}{
		{"bearer", "/v1/completions", dataToken, 200},
		{"admin may use the data routes", "/v1/completions", adminToken, 200},
		{"prefix", "/t/" + dataToken + "/v1/completions", "", 200},
		{"prefix and client", "/t/" + dataToken + "/c/env.gsm8k/v1/completions", "", 200},
		{"client by prefix, token by header", "/c/env.math/v1/completions", dataToken, 200},
		{"none", "/v1/completions", "", 401},
		{"wrong", "/v1/completions", "nope", 401},
		{"wrong prefix", "/t/nope/v1/completions", "", 401},
		{"wrong prefix beats right header", "/t/nope/v1/completions", dataToken, 401},
		{"control needs admin", "/recipe/v1/resume", dataToken, 403},
		{"control without token", "/recipe/v1/resume", "", 401},
		{"adapters need admin", "/v1/load_lora_adapter", dataToken, 403},
		{"adapters by admin", "/v1/load_lora_adapter", adminToken, 200},
		{"engine's own routes are closed", "/pause", dataToken, 404},
		{"even to admin", "/collective_rpc", adminToken, 404},
		{"no way round by dots", "/v1/../pause", dataToken, 404},
		{"no way round by encoded dots", "/v1/%2e%2e/pause", dataToken, 404},
		{"no way round by encoded slashes", "/v1/x%2f..%2f..%2fpause", dataToken, 404},
		{"no way round to adapters", "/v1/load_lora_adapter/", dataToken, 403},
		{"no way round to adapters by double slash", "/v1//load_lora_adapter", dataToken, 403},
		{"no way round to adapters by /v1 twice", "/v1/v1/load_lora_adapter", dataToken, 403},
		{"no way round to adapters by /v1 thrice", "/v1/v1/v1/load_lora_adapter", dataToken, 403},
		{"no way round by two slashes", "//pause", dataToken, 404},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodPost, g.URL()+tc.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.token != "" {
				req.Header.Set("Authorization", "Bearer "+tc.token)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("got %d %s, want %d", resp.StatusCode, b, tc.want)
			}
			if tc.want >= 400 && gjson.GetBytes(b, "error.message").Str == "" {
				t.Errorf("the error says nothing: %s", b)
			}
		})
	}
	for _, r := range e.seen() {
		if !strings.HasPrefix(r.path, "/v1/") {
			t.Errorf("the engine got %s", r.path)
		}
	}
	s := g.Status()
	if s.Clients["env.gsm8k"].Requests != 1 || s.Clients["env.math"].Requests != 1 {
		t.Errorf("clients are %+v, want one request each of env.gsm8k and env.math", s.Clients)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no address", Config{}, "neither Address nor Listener"},
		{"off loopback without a token", Config{Address: "0.0.0.0:0"}, "no Token"},
		{"equal tokens", Config{Address: "127.0.0.1:0", Token: "x", AdminToken: "x"}, "use two"},
		{"port taken", Config{Address: taken.Addr().String()}, "another process"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}
