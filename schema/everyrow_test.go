package schema_test

import (
	"fmt"
	"strings"
	"testing"
)

// A row that lacks a column which the function needs, or has another one, is named before anything starts, as is a
// prompt that is no text and no list of messages.
//
//docs:troubleshooting.md a row that a reward function cannot be called with is named with its line
func TestEachRowFitsTheFunction(t *testing.T) {
	t.Parallel()
	const good = `{"prompt": "1", "answer": "2"}` + "\n"
	const messages = `{"prompt": "1", "talk": [{"role": "user", "content": "1"}]}` + "\n"
	for name, c := range map[string]struct{ code, file, text, body, want string }{
		"each row has it": {code: "def f(completions, answer, **kwargs): pass", text: good + good},
		"a row lacks it": {code: "def f(completions, answer, **kwargs): pass",
			text: strings.Repeat(good, 29) + `{"prompt": "1", "anwser": "2"}` + "\n" + good,
			want: `"call" in environment.mine.e: the row at a.jsonl:30 has no "answer", which f of f.py needs. It has ` +
				`prompt, anwser. Did you mean "anwser"? Add it, remove the row, or give the argument a default value.`},
		"a row in a list lacks it": {code: "def f(completions, answer, **kwargs): pass", file: "a.json",
			text: "[" + good + ",\n" + `{"prompt": "1"}]`, want: "the row at a.json:3 has no \"answer\""},
		"a row lacks it and the prompt": {code: "def f(completions, answer, **kwargs): pass",
			text: good + `{"question": "1", "level": 2}`, want: `the row at a.jsonl:2 has no "answer"`},
		"it has a default": {code: "def f(completions, answer=None, **kwargs): pass", text: good + `{"prompt": "1"}`},
		"a decorator may give it": {code: "@lib.known\ndef f(completions, answer): pass",
			text: good + `{"prompt": "1"}`},
		"a row has another column": {code: "def f(completions, state, answer): pass", body: `all = "f.py:f"`,
			text: good + `{"prompt": "1", "answer": "2", "level": 3}`,
			want: `"all" in environment.mine.e: f of f.py does not take "level", a column of the row at a.jsonl:2. Write ` +
				`**kwargs behind its arguments, or remove the column.`},
		"another column is taken": {code: "def f(completions, state, answer, **kwargs): pass", body: `all = "f.py:f"`,
			text: good + `{"prompt": "1", "answer": "2", "level": 3}`},
		"an empty field of a table": {code: "def f(completions, **kwargs): pass", file: "a.csv",
			text: "answer,prompt\n1,\"a\nb\"\n2,\n", want: `the row at a.csv:4 has an empty text in the column "prompt"`},
		"an optional column that the recipe does not name": {text: good + good},
		"an optional column":              {text: good + good, body: `right = "answer"`},
		"an optional column of some rows": {text: `{"prompt": "1"}` + "\n" + good, body: `right = "answer"`},
		"no optional column":              {text: good + good, body: `right = ""`},
		"an optional column that no row has": {text: good + good, body: `right = "anser"`,
			want: `a.jsonl has no column "anser". It has prompt, answer. Did you mean "answer"?`},
		"an optional column that no table has": {text: "prompt,answer\n1,2\n3,4\n", file: "a.csv",
			body: `right = "anser"`, want: `a.csv has no column "anser"`},
		"messages": {text: messages + `{"prompt": "1", "talk": "a text"}`,
			body: `talk = "talk"`},
		"a turn of calls": {text: messages + `{"prompt": "1", "talk": [{"role": "assistant", "tool_calls": [{}]}]}`,
			body: `talk = "talk"`},
		"parts of text": {text: messages + `{"prompt": "1", "talk": [{"role": "user", "content": [{"type": "text"}]}]}`,
			body: `talk = "talk"`},
		"messages of ShareGPT": {text: messages + `{"prompt": "1", "talk": [{"from": "human", "value": "1"}]}`,
			body: `talk = "talk"`, want: `"talk" in environment.mine.e: the row at a.jsonl:2 has in the column "talk" ` +
				`messages of ShareGPT, such as "{\"from\": \"human\", \"value\": \"1\"}"; expected a text, or a list of ` +
				`messages like {"role": "user", "content": "…"}. Write role for "from" (user for human, assistant for gpt) and ` +
				`content for ` +
				`"value"`},
		"another key": {text: messages + `{"prompt": "1", "talk": [{"rol": "user", "content": "1"}]}`,
			body: `talk = "talk"`, want: `a message "{\"rol\": \"user\", \"content\": \"1\"}"; expected a text`},
		"an object": {text: messages + `{"prompt": "1", "talk": {"role": "user"}}`, body: `talk = "talk"`,
			want: `at a.jsonl:2 has in the column "talk" "{\"role\": \"user\"}"; expected a text`},
		"no messages": {text: messages + `{"prompt": "1", "talk": []}`, body: `talk = "talk"`,
			want: `"[]"; expected a text`},
		"an image": {text: messages + `{"prompt": "1", "talk": [{"role": "user", "content": [{"type": "image"}]}]}`,
			body: `talk = "talk"`, want: "a message with a part that is no text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, body := "a.jsonl", c.body
			if c.file != "" {
				file = c.file
			}
			if c.code != "" {
				write(t, dir, map[string]string{"f.py": c.code + "\n"})
				if body == "" {
					body = `call = "f.py:f"`
				}
			}
			write(t, dir, map[string]string{file: c.text})
			got := columnsRecipe(t, dir, fmt.Sprintf("%s\ndata = %q", body, file))
			if c.want == "" && got != "" || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
				t.Errorf("got %q, want %q alone", got, c.want)
			}
		})
	}
}
