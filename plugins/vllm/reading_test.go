package vllm

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// vLLM's parsers read what its template has the model write; without one the gateway is asked to.
func TestAnswersAreReadByTheServer(t *testing.T) {
	t.Parallel()
	tools := json.RawMessage(`[{"type":"function","function":{"name":"add"}}]`)
	sampled := inference.Sampled{Text: "…", Prompt: []int32{1, 2}, Output: []int32{3, 4}, Finish: "stop", Tools: tools,
		Variables: json.RawMessage(`{"enable_thinking":true}`)}
	without := sampled
	without.Tools = nil
	routes := map[string]bool{derender: true}
	for _, test := range []struct {
		name   string
		client client
		asked  inference.Sampled
		answer string
		want   inference.Said
		unread bool
	}{
		{name: "calls and reasoning", client: client{tools: "llama3_json", reasoning: "qwen3"}, asked: sampled,
			answer: `{"choices":[{"message":{"content":null,"reasoning":"why","tool_calls":[{"id":"x","type":"function",` +
				`"function":{"name":"add","arguments":"{\"a\": 1}"}}]}}]}`,
			want: inference.Said{Reasoning: "why", Calls: []inference.ToolCall{{Name: "add", Arguments: `{"a": 1}`}}}},
		{name: "the earlier name of reasoning", client: client{reasoning: "qwen3"}, asked: without,
			answer: `{"choices":[{"message":{"content":"so","reasoning_content":"why"}}]}`,
			want:   inference.Said{Reasoning: "why", Text: "so"}},
		{name: "no parser", asked: sampled, unread: true},
		{name: "the form of Hermes", client: client{tools: hermes}, asked: sampled, unread: true},
		{name: "a parser of tools, and no tools", client: client{tools: "mistral"}, asked: without, unread: true},
		{name: "a version without the route", client: client{tools: "mistral", offers: offers{routes: map[string]bool{}}},
			asked: sampled, unread: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got gjson.Result
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = gjson.ParseBytes(body)
				if r.URL.Path != derender {
					http.NotFound(w, r)
					return
				}
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()
			at, _ := url.Parse(server.URL)
			port, _ := strconv.Atoi(at.Port())
			c := test.client
			c.HTTP, c.model = engine.NewHTTP(title, engine.Address{Port: port}), "m"
			if c.offers.routes == nil {
				c.offers.routes = routes
			}
			said, err := c.Read(t.Context(), test.asked)
			if test.unread {
				if !errors.Is(err, inference.ErrNotRead) || got.Raw != "" {
					t.Errorf("%+v, %v, asked %s; want ErrNotRead without a request", said, err, got.Raw)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(said, test.want) {
				t.Errorf("%+v, %v; want %+v", said, err, test.want)
			}
			for path, want := range map[string]string{"generate_response.choices.0.token_ids": "[3,4]",
				"prompt_token_ids": "[1,2]", "chat_request.chat_template_kwargs": `{"enable_thinking":true}`,
				"model": `"m"`} {
				if got.Get(path).Raw != want {
					t.Errorf("%s is %s, want %s", path, got.Get(path).Raw, want)
				}
			}
			if got.Get("chat_request.tools").Exists() != (len(test.asked.Tools) > 0) {
				t.Errorf("tools: %s", got.Get("chat_request.tools").Raw)
			}
		})
	}
}
