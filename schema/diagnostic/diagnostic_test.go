package diagnostic_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

type extra struct{}

func (extra) DiagnosticAddress() string { return "trainer.grpo.t" }

// at makes a diagnostic about the first occurrence of part in src.
func at(src, part string) (*hcl.Diagnostic, map[string]*hcl.File) {
	start := strings.Index(src, part)
	pos := func(i int) hcl.Pos {
		line := strings.Count(src[:i], "\n") + 1
		column := len([]rune(src[strings.LastIndexByte(src[:i], '\n')+1:i])) + 1
		return hcl.Pos{Line: line, Column: column, Byte: i}
	}
	rng := hcl.Range{Filename: "a.hcl", Start: pos(start), End: pos(start + len(part))}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Wrong", Detail: "Do this.", Subject: &rng},
		map[string]*hcl.File{"a.hcl": {Bytes: []byte(src)}}
}

func printed(t *testing.T, d *hcl.Diagnostic, files map[string]*hcl.File, o diagnostic.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := diagnostic.Print(&out, hcl.Diagnostics{d}, files, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src, part string
		want      string
	}{
		"one line":  {"a = 1\nbb = two\n", "two", "  2 │ bb = two\n    │      ^^^\n"},
		"tab":       {"{\n\tb = two\n}\n", "two", "  2 │   b = two\n    │       ^^^\n"},
		"wide":      {"a = \"日本\" + x\n", "x", "  1 │ a = \"日本\" + x\n    │              ^\n"},
		"wide part": {"a = 日本\n", "日本", "  1 │ a = 日本\n    │     ^^^^\n"},
		"two lines": {"a = [\n  1,\n]\n", "[\n  1,\n]",
			"  1 │ a = [\n    │     ^\n  2 │   1,\n    │   ^^\n  3 │ ]\n    │ ^\n"},
		"many lines": {"a = [\n1,\n2,\n3,\n]\n", "[\n1,\n2,\n3,\n]",
			"  1 │ a = [\n    │     ^\n  2 │ 1,\n    │ ^^\n  3 │ 2,\n    │ ^^\n"},
		"end of line": {"a =\nb = 1\n", "\n", "  1 │ a =\n    │    ^\n"},
		"control":     {"a = \x01\x02\n", "\x01", "  1 │ a = ��\n    │     ^\n"},
		"combining":   {"a = \"e\u0301\" + x\n", "x", "  1 │ a = \"e\u0301\" + x\n    │           ^\n"},
		"no newline":  {"a = b", "b", "  1 │ a = b\n    │     ^\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, files := at(c.src, c.part)
			got := printed(t, d, files, diagnostic.Options{})
			if !strings.Contains(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestPrintFitsTheWidth(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"long before": strings.Repeat("x", 300) + " = oops\n",
		"long after":  "a = oops" + strings.Repeat(" + 日本", 300) + "\n",
		"long part":   "a = [oops" + strings.Repeat(", 1", 300) + "]\n",
		"very long":   strings.Repeat("y", 100000) + "oops" + strings.Repeat("z", 100000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := "oops"
			if name == "long part" {
				part = strings.TrimSpace(src[4:])
			}
			d, files := at(src, part)
			d.Detail = strings.Repeat("many words ", 40)
			got := printed(t, d, files, diagnostic.Options{Width: 60})
			for line := range strings.Lines(got) {
				columns := 0
				for _, r := range strings.TrimSuffix(line, "\n") {
					columns++
					if r > 0x2fff && r < 0xff00 {
						columns++
					}
				}
				if columns > 61 {
					t.Errorf("%d columns: %s", columns, line)
				}
			}
			if !strings.Contains(got, "oops") || !strings.Contains(got, "^") {
				t.Errorf("the mistake itself is cut off:\n%s", got)
			}
		})
	}
}

func TestPrintColors(t *testing.T) {
	t.Parallel()
	d, files := at("a = b\n", "b")
	if got := printed(t, d, files, diagnostic.Options{}); strings.Contains(got, "\x1b") {
		t.Errorf("colors without being asked for: %q", got)
	}
	got := printed(t, d, files, diagnostic.Options{Color: true})
	if !strings.Contains(got, "\x1b[1;31mError:\x1b[0m \x1b[1mWrong\x1b[0m") {
		t.Errorf("%q", got)
	}
	d.Severity = hcl.DiagWarning
	if got := printed(t, d, files, diagnostic.Options{Color: true}); !strings.Contains(got, "\x1b[1;33mWarning:") {
		t.Errorf("%q", got)
	}
}

func TestPrintNamesTheBlockAndSurvivesMissingFiles(t *testing.T) {
	t.Parallel()
	d, _ := at("a = b\n", "b")
	d.Extra = extra{}
	if got := printed(t, d, nil,
		diagnostic.Options{}); got != "Error: Wrong\n  ─▶ a.hcl:1:5 in trainer.grpo.t\n  Do this.\n" {
		t.Errorf("%q", got)
	}
	d.Subject = nil
	if got := printed(t, d, nil, diagnostic.Options{}); got != "Error: Wrong\n  in trainer.grpo.t\n  Do this.\n" {
		t.Errorf("%q", got)
	}
	d.Subject = &hcl.Range{Filename: "a.hcl", Start: hcl.Pos{Line: 9, Column: 9, Byte: 999},
		End: hcl.Pos{Line: 9, Column: 9, Byte: 999}}
	printed(t, d, map[string]*hcl.File{"a.hcl": {Bytes: []byte("short")}}, diagnostic.Options{})
}

func TestPrintShowsValuesButNoSecrets(t *testing.T) {
	t.Parallel()
	const src = "a.plain + a.secret + a.list + a.unknown + a.missing"
	expr, diags := hclsyntax.ParseExpression([]byte(src), "a.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	rng := expr.Range()
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Wrong", Subject: &rng, Expression: expr,
		EvalContext: &hcl.EvalContext{Variables: map[string]cty.Value{
			"a": cty.ObjectVal(map[string]cty.Value{"plain": cty.StringVal("seen"),
				"secret": cty.StringVal("hunter2").Mark("sensitive"),
				"list":   cty.TupleVal([]cty.Value{cty.True}), "unknown": cty.UnknownVal(cty.String)})}}}
	got := printed(t, d, nil, diagnostic.Options{})
	for _, want := range []string{`with a.plain = "seen"`, "with a.secret is a sensitive value",
		"with a.list is a list with 1 element(s)", "with a.unknown is not known yet"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Error("a secret is shown")
	}
}

// Errors in one long line do not repeat the line each.
func TestLongLinesAreNotRepeated(t *testing.T) {
	t.Parallel()
	src := []byte("a = \"" + strings.Repeat("x", 1<<20) + "\"")
	files := map[string]*hcl.File{"r.hcl": {Bytes: src}}
	var diags hcl.Diagnostics
	for i := range 100 {
		at := hcl.Pos{Line: 1, Column: i + 1, Byte: i}
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Wrong",
			Subject: &hcl.Range{Filename: "r.hcl", Start: at, End: at}})
	}
	var out bytes.Buffer
	if err := diagnostic.WriteJSON(&out, diags, files); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 1<<20 {
		t.Errorf("100 errors in a line of a megabyte make %d bytes", out.Len())
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	d, files := at("a = 1\nbé = [\n  日本,\n]\n", "[\n  日本,\n]")
	d.Extra = extra{}
	w := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Old"}
	var out bytes.Buffer
	if err := diagnostic.WriteJSON(&out, hcl.Diagnostics{w, d}, files); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines; want one, to stand among events", n)
	}
	var got diagnostic.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Valid || got.Errors != 1 || got.Warnings != 1 || got.FormatVersion != "1.2" || len(got.Diagnostics) != 2 {
		t.Errorf("%+v", got)
	}
	if got.Diagnostics[0].Severity != "warning" || got.Diagnostics[0].Range != nil ||
		got.Diagnostics[0].Snippet != nil {
		t.Errorf("%+v", got.Diagnostics[0])
	}
	item := got.Diagnostics[1]
	if item.Address != "trainer.grpo.t" || item.Range.File != "a.hcl" ||
		item.Range.Start != (diagnostic.Pos{Line: 2, Column: 6, Byte: 12}) || item.Snippet.StartLine != 2 {
		t.Errorf("%+v %+v", item, item.Range)
	}
	if part := item.Snippet.Code[item.Snippet.Highlight[0]:item.Snippet.Highlight[1]]; part != "[\n  日本,\n]" {
		t.Errorf("highlight is %q", part)
	}
	empty := diagnostic.NewReport(nil, nil)
	if data, _ := json.Marshal(empty); !empty.Valid || !strings.Contains(string(data), `"diagnostics":[]`) {
		t.Errorf("%s", data)
	}
}
