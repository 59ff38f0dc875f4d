package lm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
)

// ChatTemplate renders a conversation as the server does (see server.flatten): each tool, message and call of a tool on
// a line of its own, except an answer, which follows what it answers at once, as it was sampled.
const ChatTemplate = `{%- set line = namespace(begun=false) -%}
{%- for tool in tools or [] -%}
{%- if line.begun -%}{{- '\n' -}}{%- endif -%}
{{- tool | tojson -}}
{%- set line.begun = true -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message['content'] -%}
{%- if line.begun and message['role'] != 'assistant' -%}{{- '\n' -}}{%- endif -%}
{{- message['content'] -}}
{%- set line.begun = true -%}
{%- endif -%}
{%- for call in message['tool_calls'] or [] -%}
{%- if line.begun -%}{{- '\n' -}}{%- endif -%}
{{- call['function'] | tojson -}}
{%- set line.begun = true -%}
{%- endfor -%}
{%- endfor -%}`

// Files writes the tokenizer into a folder in the form that the Python library transformers reads. A tokenizer
// without bytes refuses a character outside of its alphabet; there it becomes a question mark, or padding when the
// alphabet has none.
func (t *Tokenizer) Files(folder string, context int) error {
	vocabulary := make(map[string]int32, t.Size())
	var special []map[string]any
	for _, id := range []int32{Padding, Beginning, End} {
		vocabulary[t.Name(id)] = id
		special = append(special, map[string]any{
			"id": id, "content": t.Name(id), "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": true,
		})
	}
	for r, id := range t.ids {
		vocabulary[string(r)] = id
	}
	for id := t.characters(); id < t.Size(); id++ {
		vocabulary[t.Name(int32(id))] = int32(id) //nolint:gosec // a small number
	}
	unknown := t.Name(Padding)
	if strings.ContainsRune(string(t.alphabet), '?') {
		unknown = "?"
	}
	files := map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": special, "normalizer": nil,
			"pre_tokenizer": map[string]any{"type": "Split", "pattern": map[string]any{"Regex": `[\s\S]`},
				"behavior": "Isolated", "invert": false},
			"post_processor": nil, "decoder": map[string]any{"type": "Sequence", "decoders": []any{
				map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"}}},
			"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []any{}, "unk_token": unknown,
				"byte_fallback": t.bytes, "dropout": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
				"fuse_unk": false, "ignore_merges": false},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context,
			"clean_up_tokenization_spaces": false,
			"pad_token":                    t.Name(Padding), "bos_token": t.Name(Beginning), "eos_token": t.Name(End),
			"split_special_tokens": true, // a text that says <eos> is five characters, as it is to the model
			"chat_template":        ChatTemplate,
		},
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("write the tokenizer: %w", err)
	}
	for name, content := range files {
		data, err := json.MarshalIndent(content, "", " ")
		if err == nil {
			err = regular.WriteFile(filepath.Join(folder, name), data)
		}
		if err != nil {
			return fmt.Errorf("write the tokenizer: %w", err)
		}
	}
	return nil
}
