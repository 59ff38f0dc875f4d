package gateway

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// TestRealVLLM runs against a real vLLM that serves any model in float32, if RECIPE_TEST_VLLM_URL and
// RECIPE_TEST_VLLM_MODEL give its address and model. The engine must give the tokens that /generate sampled the same
// log-probabilities as tokens of a prompt: tokens and log-probabilities are aligned, not only equally many.
func TestRealVLLM(t *testing.T) {
	url, model := os.Getenv("RECIPE_TEST_VLLM_URL"), os.Getenv("RECIPE_TEST_VLLM_MODEL")
	if url == "" {
		t.Skip("set RECIPE_TEST_VLLM_URL (http://host:port) and RECIPE_TEST_VLLM_MODEL to run it")
	}
	g := start(t, Config{Version: 3})
	g.SetModels(model)
	ctx := context.Background()
	if err := g.SetReplicas([]Replica{{ID: "0", URL: url}}); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(ctx, "0", 3); err != nil {
		t.Fatal(err)
	}
	prompt := []int{504, 3575, 282, 4649, 314}
	ids := strings.ReplaceAll(strings.Trim(fmt.Sprint(prompt), "[]"), " ", ",")

	t.Run("aligned", func(t *testing.T) {
		r := post(t, g, "/generate", `{"prompt":{"prompt_token_ids":[`+ids+
			`]},"logprobs":0,"n":4,"max_tokens":12,"temperature":1.0,"top_p":1.0,"stop":["User:"]}`)
		if r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		for i, out := range gjson.Get(r.body, "token_ids").Array() {
			tokens := append([]int(nil), prompt...)
			for _, id := range out.Array() {
				tokens = append(tokens, int(id.Int()))
			}
			list, err := g.Logprobs(ctx, tokens)
			if err != nil {
				t.Fatal(err)
			}
			rec, found, ambiguous := g.Lookup(tokens)
			if !found || ambiguous || rec.Version != 3 {
				t.Fatalf("completion %d is not in the record: %+v %v %v", i, rec, found, ambiguous)
			}
			worst := 0.0
			for j, lp := range rec.Logprobs {
				worst = max(worst, math.Abs(float64(lp)-list[0].Logprobs[len(prompt)+j]))
			}
			t.Logf("completion %d: sampled %.8f, as a prompt %.8f", i, rec.Logprobs, list[0].Logprobs[len(prompt):])
			if worst > 1e-3 {
				t.Errorf("completion %d: sampled and prompt log-probabilities differ by %.3g", i, worst)
			}
		}
	})
	t.Run("alternatives", func(t *testing.T) {
		r := post(t, g, "/generate", `{"prompt":[`+ids+`],"logprobs":3,"max_tokens":4,"temperature":1.0}`)
		for j, position := range gjson.Get(r.body, "logprobs.0").Array() {
			first := ""
			position.Get("0").ForEach(func(k, _ gjson.Result) bool { first = k.Str; return false })
			if n := len(position.Get("0").Map()); first != gjson.Get(r.body, fmt.Sprintf("token_ids.0.%d", j)).Raw || n < 3 ||
				n > 4 {
				t.Errorf("position %d is %s, want the sampled token first and 3 or 4 entries", j, position.Raw)
			}
		}
	})
	t.Run("greedy group", func(t *testing.T) {
		for _, path := range []string{"/generate", "/v1/completions", "/v1/chat/completions"} {
			body := `{"prompt":[` + ids + `],"n":3,"max_tokens":4,"temperature":0}`
			if path == "/v1/chat/completions" {
				body = `{"messages":[{"role":"user","content":"What is 3+4?"}],"n":3,"max_tokens":4,"temperature":0}`
			}
			r := post(t, g, path, body)
			if n := gjson.Get(r.body, "choices.#").Int() + gjson.Get(r.body, "text.#").Int(); r.status != 200 || n != 3 {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
	})
	t.Run("prompt log-probabilities", func(t *testing.T) {
		r := post(t, g, "/generate", `{"prompt":{"prompt_token_ids":[`+ids+
			`]},"prompt_logprobs":2,"n":1,"temperature":0.0,"top_p":1.0,"max_tokens":1}`)
		if n := gjson.Get(r.body, "prompt_logprobs.#").Int(); n != int64(len(prompt)) ||
			gjson.Get(r.body, fmt.Sprintf("prompt_logprobs.1.%d", prompt[1])).Type != gjson.Number {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("chat is recorded", func(t *testing.T) {
		r := post(t, g, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Name a color."}],"max_tokens":6,"logprobs":true,"return_token_ids":true}`)
		var tokens []int
		for _, path := range []string{"prompt_token_ids", "choices.0.token_ids"} {
			for _, id := range gjson.Get(r.body, path).Array() {
				tokens = append(tokens, int(id.Int()))
			}
		}
		if _, found, _ := g.Lookup(tokens); !found {
			t.Errorf("not in the record: %s", r.body)
		}
	})
	t.Run("stream is recorded", func(t *testing.T) {
		r := post(t, g, "/v1/completions", `{"prompt":[`+ids+
			`],"max_tokens":8,"logprobs":0,"return_token_ids":true,"stream":true}`)
		tokens := append([]int(nil), prompt...)
		for line := range strings.Lines(r.body) {
			for _, id := range gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0.token_ids").Array() {
				tokens = append(tokens, int(id.Int()))
			}
		}
		if _, found, _ := g.Lookup(tokens); !found {
			t.Errorf("not in the record: %v\n%s", tokens, r.body)
		}
	})
	t.Run("put together from a stream", func(t *testing.T) {
		anID := regexp.MustCompile(`"id":"cmpl-[^"]*"`)
		for name, body := range map[string]string{
			"greedy":               `{"prompt":{"prompt_token_ids":[` + ids + `]},"logprobs":0,"max_tokens":40,"temperature":0}`,
			"greedy, alternatives": `{"prompt":[` + ids + `],"logprobs":3,"max_tokens":20,"temperature":0}`,
			"seeded":               `{"prompt":[` + ids + `],"logprobs":0,"max_tokens":40,"temperature":1,"seed":7}`,
			"seeded group":         `{"prompt":[` + ids + `],"logprobs":0,"n":4,"max_tokens":24,"temperature":1,"seed":7}`,
			"stop string":          `{"prompt":[` + ids + `],"logprobs":0,"max_tokens":40,"temperature":0,"stop":[" answer"]}`,
			"stop token":           `{"prompt":[` + ids + `],"logprobs":0,"max_tokens":40,"temperature":0,"stop_token_ids":[314]}`,
			"without them":         `{"prompt":"The capital of France is","max_tokens":20,"temperature":0}`,
			"one token":            `{"prompt":[` + ids + `],"logprobs":0,"max_tokens":1,"temperature":0}`,
			"sglang": `{"input_ids":[` + ids +
				`],"sampling_params":{"max_new_tokens":20,"temperature":0},"return_logprob":true}`,
		} {
			ask := func(m Mode) string {
				if err := g.ExpectUpdates(m); err != nil {
					t.Fatal(err)
				}
				r := post(t, g, "/generate", body)
				if r.status != 200 {
					t.Fatalf("%s: %d %s", name, r.status, r.body)
				}
				return anID.ReplaceAllString(r.body, `"id":""`)
			}
			whole, pieces := ask(ModeDrain), ask(ModeKeep)
			sameJSON(t, name, []byte(pieces), []byte(whole))
			t.Logf("%s: %s", name, pieces[:min(len(pieces), 300)])
		}
		rec := httptest.NewRecorder()
		g.metrics(rec)
		if !strings.Contains(rec.Body.String(), "recipe_gateway_put_together_total 9\n") {
			t.Errorf("not all nine answers were put together from streams:\n%s", rec.Body)
		}
		r := post(t, g, "/generate", `{"prompt":[`+ids+`],"prompt_logprobs":1,"max_tokens":1}`)
		if r.status != 200 {
			t.Errorf("log-probabilities of a prompt: %d %s", r.status, r.body)
		}
	})
	t.Run("abort and again", func(t *testing.T) {
		long := `{"prompt":[` + ids + `],"n":2,"max_tokens":60,"logprobs":0,"ignore_eos":true}`
		got := background(t, g, "/generate", long)
		eventually(t, "the request at the engine", func() bool { return g.Status().InFlight == 1 })
		time.Sleep(300 * time.Millisecond) // so long into the generation; the result is the same without it
		h, err := g.Hold(ctx, HoldRequest{Mode: ModeAbort})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.SetVersion(4); err != nil {
			t.Fatal(err)
		}
		if err := g.Resume(h.ID); err != nil {
			t.Fatal(err)
		}
		r := <-got
		if n := len(gjson.Get(r.body, "token_ids.1").Array()); r.status != 200 || n != 60 ||
			gjson.Get(r.body, "policy_version").Int() != 4 {
			t.Errorf("%d, %d tokens, %s", r.status, n, r.body[:min(len(r.body), 300)])
		}
	})
}
