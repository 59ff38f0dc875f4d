package schema_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

//docs:troubleshooting.md rows that no block can read are refused before anything starts, with file, line and remedy
func TestRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const good, also = `{"prompt": "1"}` + "\n", `{"prompt": [{"role": "user"}]}` + "\n"
	long := good + strings.Repeat(also, 4<<20/len(also)+1)
	for name, c := range map[string]struct{ file, text, want string }{
		"good":              {"a.jsonl", good + "\r\n \n" + also, ""},
		"numbers of Python": {"a.jsonl", good + `{"prompt": "2", "x": [NaN, -Infinity]}` + "\n", ""},
		"no end of line":    {"a.jsonl", good + `{"prompt": "2"}`, ""},
		"a list":            {"a.json", "[" + good + "," + also + "]", ""},
		"numbers in a list": {"a.json", "[" + good + `, {"prompt": "2", "x": -Infinity}]`, ""},
		"a table":           {"a.csv", "prompt,answer\n1,2\n\"a,\n b\",4\n", ""},
		"quotes in a table": {"a.csv", "prompt,answer\n1,2\na \"b\" c,4,5\n", ""},
		"packed":            {"a.jsonl.gz", gzipped(t, good+also), ""},
		"long":              {"a.jsonl", long + "{", ""}, // behind the first part
		"cut": {"a.jsonl", good + good + `{"prompt": "1", "ans` + "\n" + good,
			`a.jsonl:3: expected a JSON object, got "{\"prompt\": \"1\", \"ans". The line seems to be cut`},
		"single quotes":       {"a.jsonl", good + "{'prompt': '1'}\n", "json.dumps writes it"},
		"commas":              {"a.jsonl", `{"prompt": "1"},` + "\n" + good, "a.jsonl:1: "},
		"several lines a row": {"a.jsonl", "{\n\"prompt\": \"1\"\n}\n", "Write each object on one line"},
		"a list of one line":  {"a.jsonl", `[{"prompt": "1"}]`, "whose name ends in .json"},
		"no object":           {"a.ndjson", good + "\"1\"\n", `a.ndjson:2: expected a JSON object, got "\"1\""`},
		"broken in a list": {"a.json", "[" + good + ",\n{\"prompt\"}]",
			"a.json:3: it is no list of JSON objects"},
		"no end of a list":   {"a.json", "[" + good, "a.json:1: the list does not end"},
		"a number in a list": {"a.json", "[" + good + ", 1]", "a.json:2: expected a JSON object, got \"1\""},
		"not packed": {"a.jsonl.gz", good,
			`a.jsonl.gz is no gzip file; it begins with "{\"prompt\": \"1\"}\n". Name it a.jsonl`},
		"packed and cut":    {"a.jsonl.gz", gzipped(t, good)[:20], "a.jsonl.gz is no whole gzip file: unexpected EOF"},
		"packed and broken": {"a.jsonl.gz", gzipped(t, good+"{"), "a.jsonl.gz:2: "},
		"fields": {"a.csv", "prompt,answer\n1,2\n1,000,2\n",
			"a.csv:3: the line has 3 fields, and the first line 2"},
		"latin":                {"a.csv", "prompt,answer\n1,2\nM\xfcller,2\n", "a.csv:3: a byte is not text in UTF-8"},
		"UTF-16":               {"a.csv", "\xff\xfep\x00", "text in UTF-16"},
		"semicolons":           {"a.csv", "prompt;answer\n1;2\n", `a.csv:1: the line of names has no comma, and fields that semicolons`},
		"tabs":                 {"a.csv", "prompt\tanswer\n1\t2\n", "a name that ends in .tsv"},
		"one column":           {"a.csv", "prompt\na;b\nc\n", ""},
		"a quoted name":        {"a.csv", "\"prompt\"\n1\n2\n", ""},
		"parts":                {"a.json", `{"train": [` + good + `]}`, `rows in its member "train"; expected a list of rows`},
		"parts, indented":      {"a.json", "{\n \"name\": 1,\n \"data\": [\n" + good + "]}", `jq .data FILE`},
		"a column called data": {"a.json", also + `{"prompt": "1", "data": [{"in": 1}]}`, ""},
		"no prompt": {"a.jsonl", good + "\n" + `{"Prompt": "1"}`,
			`the row at a.jsonl:3 has nothing in the column "prompt". Every row needs a value there: add it, or remove the ` +
				`row. Did you mean "Prompt"?`},
		"an empty prompt": {"a.jsonl", good + `{"prompt": ""}`,
			`the row at a.jsonl:2 has an empty text in the column "prompt"`},
		"null": {"a.json", "[" + good + ",\n\n" + `{"prompt": null}]`,
			`the row at a.json:4 has null in the column "prompt"`},
		"early in a long file": {"a.jsonl", good + "{\n" + long,
			"Of this large file the rows in the first 4 MiB are looked at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{c.file: c.text})
			got := columnsRecipe(t, dir, fmt.Sprintf("data = %q", c.file))
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.Count(got, "\n") > 0 {
				t.Errorf("more than one problem: %s", got)
			}
		})
	}
}
