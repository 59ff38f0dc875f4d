package schema_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/parquet-go/parquet-go"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// readingConfig is of a block whose attributes name functions, a file of rows, and columns of it.
func readingConfig(t *testing.T) *spec.Schema {
	t.Helper()
	type function struct {
		Function string `recipe:"function" code:"callable"`
	}
	config, err := spec.Of(struct {
		Call   string     `recipe:"call" code:"callable"`
		Calls  []function `recipe:"calls,block"`
		Data   string     `recipe:"data" file:"content"`
		Prompt string     `recipe:"prompt" default:"prompt"`
		Kept   int64      `recipe:"kept" default:"1"`
		All    string     `recipe:"all" code:"callable"`
		Talk   *string    `recipe:"talk"`
		Right  string     `recipe:"right" default:"solution"`
	}{})
	if err != nil {
		t.Fatal(err)
	}
	given := &spec.Columns{Of: "data", Given: []string{"completions"}, LeftOut: []string{"prompt"}}
	config.Attribute("call").Columns = given
	config.Attribute("data").Required = true
	config.Block("calls").Schema.Attribute("function").Columns = given
	config.Attribute("all").Columns = &spec.Columns{Of: "data", Given: []string{"completions", "state"},
		LeftOut: []string{"prompt", "state"}, Every: true}
	config.Attribute("kept").Columns = &spec.Columns{Of: "data"}
	config.Attribute("prompt").Columns = &spec.Columns{Of: "data"}
	config.Attribute("talk").Columns = &spec.Columns{Of: "data", Messages: true}
	config.Attribute("right").Columns = &spec.Columns{Of: "data", Optional: true}
	return config
}

// columnsRecipe returns the problems of a block whose attributes name columns of the file of its attribute data.
func columnsRecipe(t *testing.T, dir, body string) string {
	t.Helper()
	config := readingConfig(t)
	file := filepath.Join(dir, "r.hcl")
	if err := os.WriteFile(file, []byte("environment \"mine\" \"e\" {\n"+body+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, diags := schema.Load(file, schema.Options{Plugins: readers{config}})
	var text []string
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text = append(text, d.Summary+": "+d.Detail)
	}
	return strings.Join(text, "\n")
}

func TestColumnsThatAFileLacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var packed, table bytes.Buffer
	type row struct {
		Prompt string `parquet:"prompt"`
		Answer string `parquet:"answer"`
	}
	if err := parquet.Write(&table, []row{{"1+1=", "2"}, {"1+2=", "3"}}); err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(`{"prompt": "1+1=", "answer": "2"}` + "\n{\"prompt\": 1}\n"))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{
		"rewards.py": "def right(completions, answer, **kwargs):\n    pass\n\ndef needs(completions, solution, level=1):\n" +
			"    pass\n\ndef left_out(prompt):\n    pass\n\n@lib.retry\ndef decorated(solution):\n    pass\n\n" +
			"@functools.cache\ndef kept(solution):\n    pass\n\nclass Made:\n    def __call__(self, other):\n        pass\n",
		"a.jsonl":       "\ufeff" + `{"prompt": "1+1=", "answer": "2"}` + "\n{\"prompt\": \"2\", \"answer\": \"\"}\n",
		"a.gz.jsonl.gz": packed.String(),
		"a.json":        ` [{"prompt": "1+1=", "answer": "2"}, {"prompt": [{}]}]`,
		"lines.json": `{"prompt": "1", "answer": ""}` +
			"\n{\"prompt\": \"2\"}",
		"a.csv": "prompt,\"answer\"\n1+1=,2\n1+2=,\"3\n4\"\n", "a.tsv": "prompt\tanswer\n1\t2\n3\t4\n",
		"broken.parquet": "PAR1",
		"a.parquet":      table.String(), "short.parquet": "PAR",
		"empty.jsonl": "", "none.json": "[\n]", "broken.json": `[{"prompt": `,
	})
	const has = " It has prompt, answer."
	needs := func(file string) string {
		return "needs of rewards.py needs \"solution\", which " + file + " does not have as a column." + has +
			" Besides columns a function gets completions."
	}
	for body, want := range map[string]string{
		"call = \"rewards.py:right\"\ndata = \"a.jsonl\"":                  "",
		"call = \"rewards.py:needs\"\ndata = \"a.jsonl\"":                  needs("a.jsonl"),
		"call = \"rewards.py:needs\"\ndata = \"a.gz.jsonl.gz\"":            needs("a.gz.jsonl.gz"),
		"call = \"rewards.py:needs\"\ndata = \"a.json\"":                   needs("a.json"),
		"call = \"rewards.py:needs\"\ndata = \"lines.json\"":               needs("lines.json"),
		"call = \"rewards.py:needs\"\ndata = \"a.csv\"":                    needs("a.csv"),
		"call = \"rewards.py:needs\"\ndata = \"a.tsv\"":                    needs("a.tsv"),
		"call = \"rewards.py:needs\"\ndata = \"a.parquet\"":                needs("a.parquet"),
		"call = \"rewards.py:needs\"\ndata = \"broken.parquet\"":           "broken.parquet is no whole Parquet file",
		"call = \"rewards.py:needs\"\ndata = \"short.parquet\"":            "short.parquet is no whole Parquet file",
		"call = \"rewards.py:kept\"\ndata = \"a.parquet\"":                 `kept of rewards.py needs "solution"`,
		"call = \"rewards.py:decorated\"\ndata = \"a.jsonl\"":              "",
		"call = \"rewards.py:needs\"\ndata = \"empty.jsonl\"":              "none is left. Add rows.",
		"call = \"rewards.py:needs\"\ndata = \"broken.json\"":              "broken.json:1: it is no list of JSON objects",
		"call = \"rewards.py:needs\"\ndata = \"a/hub\"":                    "",
		"call = \"rewards.py:Made\"\ndata = \"a.jsonl\"":                   "",
		"call = \"lib.rewards:needs\"\ndata = \"a.jsonl\"":                 "",
		"call = \"rewards.py:left_out\"\ndata = \"a.jsonl\"":               `left_out of rewards.py needs "prompt"`,
		"calls {\n function = \"rewards.py:needs\"\n}\ndata = \"a.jsonl\"": needs("a.jsonl"),
		"prompt = \"promt\"\ndata = \"a.csv\"": `a.csv has no column "promt".` + has +
			` Did you mean "prompt"?`,
		"call = \"rewards.py:right\"\ndata = \"other.csv\"": "there is no file other.csv",
		`data = ""`: `No file: "data" in environment.mine.e is empty; expected the name of a file.`,
	} {
		if got := columnsRecipe(t, dir, body); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %q", body, got, want)
		}
	}
	write(t, dir, map[string]string{"other.csv": "question,answer\n1,2\n3,4\n"})
	if got := columnsRecipe(t, dir, `data = "other.csv"`); !strings.Contains(got, `other.csv has no column "prompt"`) {
		t.Errorf("the default of an attribute: %s", got)
	}
	write(t, dir, map[string]string{"empty.csv": "prompt,answer\n", "one.jsonl": "{\"prompt\": \"1\"}\n"})
	for _, file := range []string{"a.jsonl", "a.gz.jsonl.gz", "a.json", "lines.json", "a.csv", "a.tsv", "a.parquet"} {
		got := columnsRecipe(t, dir, fmt.Sprintf("data = %q\nkept = 2", file))
		if want := `"kept" in environment.mine.e keeps back 2 rows, and ` + file + ` has 2: none is left. Write a smaller ` +
			`number, such as kept = 1, or add rows.`; !strings.Contains(got, want) {
			t.Errorf("%s, of which as many rows are kept back as it has: %q", file, got)
		}
	}
	for file, want := range map[string]string{"empty.csv": "has 0: none is left. Add rows.",
		"broken.json": "unexpected EOF",
		"one.jsonl":   "has 1: none is left. Add rows.", "empty.jsonl": "has 0: none is left. Add rows.",
		"none.json": "has 0: none is left. Add rows."} {
		got := columnsRecipe(t, dir, fmt.Sprintf("data = %q", file))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// Rows that are kept back for evaluations, and whose prompt is trained on all the same, are a warning.
func TestHeldOutRowsThatAreTrainedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.jsonl": `{"prompt": "1"}
{"prompt": "2"}
{"prompt": "3"}
{"prompt": "1"}
{"prompt": "1"}
`, "a.csv": "prompt,answer\n1,1\n2,2\n2,3\n",
		"own.jsonl": "{\"prompt\": \"1\"}\n{\"prompt\": \"1\"}\n{\"prompt\": \"2\"}\n",
	})
	for body, want := range map[string]string{
		"data = \"a.jsonl\"\nkept = 2":   "keeps back 2 rows of a.jsonl, and 1 of them have a prompt that a row for training",
		"data = \"a.csv\"\nkept = 2":     "keeps back 2 rows of a.csv, and 1 of them",
		"data = \"own.jsonl\"\nkept = 2": "", // of two that are kept back, none is trained on
		"data = \"a.jsonl\"\nkept = 4":   "keeps back 4 rows of a.jsonl, and 2 of them",
	} {
		file := filepath.Join(dir, "r.hcl")
		write(t, dir, map[string]string{"r.hcl": "environment \"mine\" \"e\" {\ntalk = \"prompt\"\n" + body + "\n}\n"})
		_, diags := schema.Load(file, schema.Options{Plugins: readers{readingConfig(t)}})
		found := ""
		for _, d := range diags {
			if d.Severity == hcl.DiagWarning && d.Summary == "Held-out rows that are trained on" {
				found += d.Detail
			}
		}
		if (found == "") != (want == "") || !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", body, found, want)
		}
	}
}

func TestArgumentsThatAFunctionDoesNotTake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.jsonl": strings.Repeat(`{"prompt": "1+1=", "answer": "2"}`+"\n", 2)})
	for _, c := range []struct {
		name, code, data string
		want             string // the arguments that are not taken
	}{
		{"all of them", "def f(completions, state, answer): pass", "a.jsonl", ""},
		{"others are taken", "def f(completions, **kwargs): pass", "a.jsonl", ""},
		{"with a default", "def f(completions, state=None, *, answer=1): pass", "a.jsonl", ""},
		{"a column", "def f(completions, state): pass", "a.jsonl", `"answer"`},
		{"arguments and a column", "def f(prompt=1): pass", "a.jsonl", `"completions", "state", "answer"`},
		{"positional arguments alone", "def f(*all): pass", "a.jsonl", `"completions", "state", "answer"`},
		{"a file whose columns are unknown", "def f(completions): pass", "a/hub", `"state"`},
		{"a decorator may take them", "@lib.known\ndef f(completions): pass", "a.jsonl", ""},
		{"a class", "class f:\n    def __call__(self): pass", "a.jsonl", ""},
	} {
		write(t, dir, map[string]string{"f.py": c.code + "\n"})
		want := ""
		if c.want != "" {
			want = `Arguments not taken: "all" in environment.mine.e: f of f.py does not take ` + c.want +
				`, which it is called with by name. Write **kwargs behind its arguments.`
		}
		if got := columnsRecipe(t, dir, fmt.Sprintf("all = \"f.py:f\"\ndata = %q", c.data)); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
	write(t, dir, map[string]string{"f.py": "def f(completions, /, **kwargs): pass\n"})
	want := `f of f.py takes "completions" by position only, and it is called by name. Remove the / behind it.`
	if got := columnsRecipe(t, dir, "all = \"f.py:f\"\ndata = \"a.jsonl\""); !strings.HasSuffix(got, want) {
		t.Errorf("by position: %q, want %q", got, want)
	}
}
