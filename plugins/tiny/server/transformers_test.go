package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// withTransformers is an interpreter that has transformers, made by scripts/venv.sh atropos.
func withTransformers(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"venv-atropos", "venv-test"} {
		path, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", name, "bin", "python"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no .cache/venv-atropos with transformers; scripts/venv.sh atropos makes it")
	return ""
}

// The model and transformers have the same tokens, and render conversations alike.
func TestTransformersReadsTheTokenizer(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	const program = `
import json, sys
from transformers import AutoTokenizer
t = AutoTokenizer.from_pretrained(sys.argv[1])
asked = json.load(sys.stdin)
chats = list(zip(asked["chats"], asked["tools"]))
def ids(chat, **more):
    return t.apply_chat_template(chat[0], tools=chat[1], return_dict=False, **more)
print(json.dumps({
    "ids": [t.encode(text) for text in asked["texts"]],
    "texts": [t.decode(t.encode(text)) for text in asked["texts"]],
    "skipped": [t.decode([1] + t.encode(text) + [2], skip_special_tokens=True) for text in asked["texts"]],
    "chats": [ids(chat) for chat in chats],
    "prompts": [ids(chat, add_generation_prompt=True) for chat in chats],
    "special": [t.pad_token_id, t.bos_token_id, t.eos_token_id], "vocabulary": len(t), "length": t.model_max_length,
}))`
	tokenizer, err := lm.NewTokenizer(lm.ASCII)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer = tokenizer.WithBytes()
	dir := filepath.Join(t.TempDir(), "tokenizer")
	if err := tokenizer.Files(dir, 64); err != nil {
		t.Fatal(err)
	}
	texts := []string{"12+34=46", "a\n\n b", "  two  spaces ", "say <eos> and <pad>", "it 's n't a ?", lm.ASCII,
		"3 € 4 = ?", "Größe: 山 🙂\t\r\x00", "ﬁ é é"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var text []byte
		for range 1 + random.IntN(40) {
			text = append(text, lm.ASCII[random.IntN(len(lm.ASCII))])
		}
		texts = append(texts, string(text))
	}
	calls := []toolCall{{json.RawMessage(`{"name":"add","arguments":"{\"a\": 1}"}`)}}
	chats := [][]message{
		{{Role: "user", Content: "3+4="}},
		{{Role: "system", Content: "add"}, {Role: "user", Content: "3+4="}, {Role: "assistant", Content: "7"}},
		{{Role: "system"}, {Role: "user", Content: "3+4="}, {Role: "assistant", Content: "7"},
			{Role: "user", Content: "and 5?"}, {Role: "assistant", Content: "12"}, {Role: "tool", Content: "right"}},
		{{Role: "user", Content: "Größe?"}, {Role: "assistant", ToolCalls: calls}, {Role: "tool", Content: "3"}},
	}
	tools := make([]json.RawMessage, len(chats))
	tools[3] = json.RawMessage(`[{"type":"function","function":{"name":"add","description":"a < b & \"é\"",` +
		`"parameters":{"type":"object","properties":{"a":{"type":"number","minimum":0.5}},"required":["a"],"x":[],"y":{}}}}]`)
	asked := make([][]map[string]any, len(chats))
	for i, chat := range chats {
		for _, m := range chat {
			one := map[string]any{"role": m.Role, "content": m.Content}
			if m.ToolCalls != nil {
				one["tool_calls"] = m.ToolCalls
			}
			asked[i] = append(asked[i], one)
		}
	}
	input, err := json.Marshal(map[string]any{"texts": texts, "chats": asked, "tools": tools})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), withTransformers(t), "-c", program,
		dir)
	command.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	command.Stdin = bytes.NewReader(input)
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		_ = errors.As(err, &exit)
		t.Fatalf("%v %+v", err, exit)
	}
	var got struct {
		IDs                []([]int32) `json:"ids"`
		Texts, Skipped     []string
		Chats, Prompts     [][]int32
		Special            []int32
		Vocabulary, Length int
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, text := range texts {
		want, err := tokenizer.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs[i], want) || got.Texts[i] != text || got.Skipped[i] != text {
			t.Errorf("%q: ids %v, want %v; decoded %q and without special tokens %q", text, got.IDs[i], want, got.Texts[i],
				got.Skipped[i])
		}
	}
	for i, chat := range chats {
		text, err := flatten(chat, tools[i])
		if err != nil {
			t.Fatal(err)
		}
		want, err := tokenizer.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Chats[i], want) || !slices.Equal(got.Prompts[i], want) {
			t.Errorf("%v is rendered as %q and %q, the server renders %q", chat, tokenizer.Decode(got.Chats[i]),
				tokenizer.Decode(got.Prompts[i]), text)
		}
	}
	if !slices.Equal(got.Special, []int32{lm.Padding, lm.Beginning, lm.End}) || got.Vocabulary != tokenizer.Size() ||
		got.Length != 64 {
		t.Errorf("special tokens %v, %d tokens, length %d", got.Special, got.Vocabulary, got.Length)
	}
}
