package reward

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// asked is what becomes of a row: the request for its completions, and what the reward function gets.
type asked struct {
	ID      string                     `json:"id"`
	System  string                     `json:"system_prompt,omitempty"`
	Request map[string]json.RawMessage `json:"request"`
	Sampled string                     `json:"sampled"` // text of the tokens
	Given   any                        `json:"given"`
}

// sampledText is what the policy answers to every row: its bytes are its tokens, and a stop text ends it.
const sampledText, stopText = "Half <answer>2", "</answer>"

// answering is a policy that records the requests that it answers.
func answering(t *testing.T) (url string, requests func() []map[string]json.RawMessage) {
	t.Helper()
	var mu sync.Mutex
	var all []map[string]json.RawMessage
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		all = append(all, request)
		mu.Unlock()
		choice := map[string]any{"index": 0, "finish_reason": "stop", "stop_reason": stopText, "text": sampledText,
			"token_ids": bytesOf(sampledText + stopText), "prompt_token_ids": []int{1}}
		logprobs := make([]float64, len(sampledText+stopText))
		choice["logprobs"] = map[string]any{"token_logprobs": logprobs}
		if request["messages"] != nil {
			content := make([]map[string]any, len(logprobs))
			for i := range content {
				content[i] = map[string]any{"token": "", "logprob": 0}
			}
			delete(choice, "text")
			choice["message"], choice["logprobs"] = map[string]any{"content": sampledText}, map[string]any{"content": content}
		}
		var n int
		if err := json.Unmarshal(request["n"], &n); err != nil {
			t.Error(err)
		}
		choices := slices.Repeat([]any{choice}, n)
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": choices})
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []map[string]json.RawMessage {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func bytesOf(text string) []int {
	ids := make([]int, 0, len(text))
	for _, b := range []byte(text) {
		ids = append(ids, int(b))
	}
	return ids
}

// testdata/asked.json is what plugins/trl/tests/test_rows.py compares with what TRL makes of the same rows.
// RECIPE_UPDATE=1 writes it anew.
func TestRequestsOfRows(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	rows, err := os.ReadFile(filepath.Join("testdata", "rows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var got []asked
	for _, system := range []string{"", "Think first."} {
		got = append(got, askedOf(t, python, rows, system)...)
	}
	data, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden, data := filepath.Join("testdata", "asked.json"), append(data, '\n')
	if os.Getenv("RECIPE_UPDATE") != "" {
		if err := os.WriteFile(golden, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, data) {
		t.Errorf("%s is not what is asked now (%v); RECIPE_UPDATE=1 writes it anew:\n%s", golden, err, data)
	}
}

func askedOf(t *testing.T, python string, rows []byte, system string) []asked {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rows.jsonl": string(rows), "rewards.py": `
import json

def keep(prompts, completions, id, **kwargs):
    with open("given.jsonl", "a") as out:
        out.write(json.dumps({"id": id[0], "given": completions[0]}) + "\n")
    return [1.0 for _ in completions]
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, requests := answering(t)
	def, one := Plugin(), cty.NumberIntVal(1)
	config, api := body(t, def, map[string]cty.Value{"function": cty.StringVal("rewards.py:keep"), "eval_rows": one,
		"concurrency": one, "drop_uninformative": cty.False, "system_prompt": cty.StringVal(system),
		"group_size": cty.NumberIntVal(2), "expected_column": cty.StringVal("answer"),
		"stop": cty.ListVal([]cty.Value{cty.StringVal(stopText)}),
		"inference": plugintest.Ref("inference.x.y", kind.Inference, outputs.Inference{BaseURL: url + "/v1",
			Model: "m"}).Values})
	b := plugintest.Harness(t, def)
	b.Start(config, in(dir), scripttest.With(python))
	count := bytes.Count(rows, []byte("\n")) - 1
	api.Wait(count)
	file, err := os.Open(filepath.Join(dir, "given.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all, known := requests(), map[string]asked{}
	for lines := bufio.NewScanner(file); lines.Scan() && len(known) < count; {
		one := asked{System: system, Request: map[string]json.RawMessage{}, Sampled: sampledText + stopText}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		request := all[len(known)] // one group is made after the other
		for _, name := range []string{"prompt", "messages", "tools", "chat_template_kwargs", "add_generation_prompt",
			"continue_final_message"} {
			if v, ok := request[name]; ok {
				one.Request[name] = v
			}
		}
		known[one.ID] = one
	}
	out := make([]asked, 0, len(known))
	for _, id := range slices.Sorted(maps.Keys(known)) {
		out = append(out, known[id])
	}
	return out
}
