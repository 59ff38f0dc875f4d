package schema_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// encoded is a recipe of many lines in another encoding.
func encoded(order binary.ByteOrder, mark bool, width int) []byte {
	text := strings.Repeat("locals { a = \"ä\" }\n", 500)
	if mark {
		text = "\ufeff" + text
	}
	var out []byte
	for _, r := range text {
		if width == 4 {
			out = append(out, 0, 0, 0, 0)
			order.PutUint32(out[len(out)-4:], uint32(r))
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			out = append(out, 0, 0)
			order.PutUint16(out[len(out)-2:], u)
		}
	}
	return out
}

// TestFilesThatAreNoText: one short message, whatever the file holds.
func TestFilesThatAreNoText(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		src  []byte
		want string
	}{
		"UTF-16, little endian":    {encoded(binary.LittleEndian, true, 2), "encoded in UTF-16"},
		"UTF-16, big endian":       {encoded(binary.BigEndian, true, 2), "encoded in UTF-16"},
		"UTF-16 without a mark":    {encoded(binary.LittleEndian, false, 2), "UTF-16"},
		"UTF-16 BE without a mark": {encoded(binary.BigEndian, false, 2), "UTF-16"},
		"UTF-32, little endian":    {encoded(binary.LittleEndian, true, 4), "encoded in UTF-32"},
		"UTF-32, big endian":       {encoded(binary.BigEndian, true, 4), "encoded in UTF-32"},
		"Latin-1": {[]byte(strings.Repeat("locals { a = \"\xe4\" }\n", 500)),
			"byte 15 is 0xe4"},
		"a program": {program[:1<<20], "binary"},
		"compressed": {append([]byte("\x1f\x8b\x08"),
			bytes.Repeat([]byte{0xf3, 0x9c, 0x80}, 20000)...), "0x8b"},
		"a zero byte":                 {[]byte("locals { a = 1 }\n\x00\n"), "a binary file"},
		"right to left":               {[]byte("locals {\n  a = 1 # \u202e } evil {\n}\n"), "U+202E"},
		"an isolate in a string":      {[]byte("locals {\n  a = \"x\u2066y\"\n}\n"), "U+2066"},
		"an embedding in a name":      {[]byte("locals {\n  a\u202ab = 1\n}\n"), "U+202A"},
		"the end of an isolate":       {[]byte("locals {}\n#\u2069\n"), "U+2069"},
		"an override in a here text":  {[]byte("locals {\n  a = <<EOT\n\u202d\nEOT\n}\n"), "U+202D"},
		"many hidden characters":      {[]byte(strings.Repeat("# \u202e\n", 5000)), "U+202E"},
		"among characters beside it":  {[]byte("# \u2029\u202f\u2065\u206a\u2030\u202b\n"), "U+202B"},
		"behind text that looks like": {[]byte("# â‚¬ € \u2067\n"), "U+2067"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, diags := schema.LoadSource("x.hcl", c.src, schema.Options{})
			if len(diags) != 1 || !diags.HasErrors() || !strings.Contains(diags[0].Detail, c.want) ||
				diags[0].Subject == nil {
				t.Fatalf("%d messages: %.500s", len(diags), diags.Error())
			}
			var out bytes.Buffer
			if err := diagnostic.Print(&out, diags, r.Files, diagnostic.Options{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if out.Len() > 1000 || strings.ContainsAny(out.String(),
				"\x00\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") {
				t.Errorf("%d bytes are shown: %q", out.Len(), out.String()[:min(out.Len(), 1000)])
			}
			out.Reset()
			if err := diagnostic.WriteJSON(&out, diags, r.Files); err != nil || out.Len() > 2000 {
				t.Errorf("%d bytes of JSON, %v", out.Len(), err)
			}
		})
	}
}

// The same holds for variable files and templates.
func TestOtherFilesThatAreNoText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, src := range map[string]string{"u16.vars.hcl": string(encoded(binary.LittleEndian, true, 2)),
		"hidden.vars.hcl": "a = \"\u202e\"\n", "hidden.tmpl": "x\u202ey"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src := []byte("variable \"a\" { default = \"\" }\n")
	for name, want := range map[string]string{"u16.vars.hcl": "UTF-16", "hidden.vars.hcl": "U+202E"} {
		_, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), src,
			schema.Options{VarFiles: []string{filepath.Join(dir, name)}})
		if len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
			t.Errorf("%s: %v", name, diags)
		}
	}
	_, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"),
		[]byte("locals { a = templatefile(\"hidden.tmpl\", {}) }\n"), schema.Options{})
	if len(diags) != 1 || !strings.Contains(diags[0].Detail, "U+202E") {
		t.Errorf("template: %v", diags)
	}
	if v, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), []byte("locals { a = \"\\u202e\" }\n"),
		schema.Options{}); diags.HasErrors() {
		t.Errorf("an escape is plain to see: %v, %v", v, diags)
	}
	if _, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), []byte("\ufefflocals { a = \"日本 العربية עברית\" }\n"),
		schema.Options{}); diags.HasErrors() {
		t.Errorf("a mark of UTF-8, and letters that are written from right to left: %v", diags)
	}
}

// TestBombs: input that needs more work than any recipe is refused, with one message for all of it.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	const deep = "[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : [for d in range(1000) : 1]]]]"
	const long = "t = [for a in split(\" \", format(\"%20000s\", \"\")) : 1]\n "
	for name, c := range map[string]struct{ locals, want string }{
		"four deep":       {"n = " + deep, "Too many iterations"},
		"in a condition":  {"n = [for a in [1] : a if length(" + deep + ") > 0]", "Too many iterations"},
		"in a key":        {"n = {for a in [1] : length(" + deep + ") => a}", "Too many iterations"},
		"in a collection": {"n = [for a in " + deep + " : a]", "Too many iterations"},
		"that keeps nothing": {"n = [for a in range(1000) : [for b in range(1000) : [for c in range(1000) : 1 if " +
			"false] if false]]", "Too many iterations"},
		"grouped": {"n = {for a in range(1000) : \"x\" => [for b in range(1000) : b]...}",
			"Too many iterations"},
		"in a template": {"n = \"%{for a in range(1000)}%{for b in range(1000)}x%{endfor}%{endfor}\"",
			"Too many iterations"},
		"in a splat": {"n = [for a in range(1000) : [for b in range(1000) : b]][*]", "Too many iterations"},
		"several": {"m = [for a in range(1000) : [for b in range(100) : b]]\n o = [for a in range(1000) : [for b " +
			"in range(100) : b]]", "Too many iterations"},
		"each element is wrong": {"o = {}\n n = [for a in range(1000) : [for b in range(100) : local.o.x]]",
			"Unsupported attribute"},
		"much to hash": {"t = join(\"\", [for a in range(1000) : \"0123456789012345678901234567890123456789\"])\n n " +
			"= [for a in range(1000) : [for b in range(100) : sha256(local.t)]]", "Too much work"},
		"each with each": {"r = range(1000)\n t = flatten([for a in range(100) : local.r])\n n = distinct(local.t)",
			"Too much work"},
		"much to sort": {"r = range(1000)\n n = [for a in local.r : sort(concat(local.r, local.r, local.r))]",
			"Too much work"},
		"text beside text": {"t = join(\"\", [for a in range(1000) : format(\"%4000d\", a)])\n n = \"" +
			strings.Repeat("${local.t}", 1000) + "\"", "Too much work"},
		"swallowed":       {"n = can(" + deep + ")", "Too many iterations"},
		"compared":        {long + "n = [for a in local.t : a == local.t]", "Too much work"},
		"in a branch":     {long + "n = [for a in local.t : a == 1 ? local.t : []]", "Too much work"},
		"of two branches": {long + "n = true ? local.t : []", "Too much work"},
		"splat each time": {long + "n = [for a in local.t : local.t[*]]", "Too much work"},
		"written each time": {long + "n = [for a in local.t : [" + strings.Repeat("0, ", 20_000) + "][0]]",
			"Too much work"},
		"of one type":  {long + "n = tolist(concat(local.t, [\"\"]))", "Too much work"},
		"of each type": {long + "n = join(\",\", concat(local.t, [\"\"]))", "Too much work"},
		"searched":     {long + "n = [for a in local.t : contains(local.t, local.t)]", "Too much work"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource("x.hcl", []byte("locals {\n "+c.locals+"\n}\n"), schema.Options{})
			if len(diags) != 1 || diags[0].Summary != c.want {
				t.Errorf("%.500s", diags.Error())
			}
		})
	}
	// Ordinary work on a long list is accepted.
	for _, n := range []string{"contains(local.t, local.t)", "length(local.t) == 20001 ? 1 : 2", "local.t[20000]",
		"concat(local.t, local.t)", "[for a in local.t : a == 1 ? a * 2 + 1 : -a]", "local.t == local.t",
		"local.t[*]", "tolist(local.t)", "join(\",\", local.t)"} {
		_, diags := schema.LoadSource("x.hcl", []byte("locals {\n "+long+"n = "+n+"\n}\n"), schema.Options{})
		if diags.HasErrors() {
			t.Errorf("%s: %v", n, diags)
		}
	}
	// Thousands of blocks that call functions on ordinary values are accepted.
	src :=
		"locals {\n  base = { a = 1, b = [1, 2, 3], c = \"text\" }\n}\nenvironment \"atropos\" \"e\" {\n  count     " +
			"= 5000\n  inference = inference.vllm.p\n  config    = merge(local.base, { n = count.index, name = " +
			"format(\"%s-%d\", local.base.c, count.index) })\n}\ninference \"vllm\" \"p\" {\n  model = \"m\"\n}\n"
	if _, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Plugins: fakePlugins(t)}); diags.HasErrors() {
		t.Error(diags)
	}
}

// TestOperatorsSideBySide: operators side by side are nested in the syntax, and would exhaust the stack.
func TestOperatorsSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for _, term := range []string{"1 + ", "(1) - ", "length([1, 2]) * ", "1 == ", "true && ", "1 !=\n"} {
		src := "locals {\n n = (" + strings.Repeat(term, 900_000) + "1)\n}\n"
		_, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{})
		if len(diags) != 1 || diags[0].Summary != "Too many operators" {
			t.Errorf("%s: %.300v", term, diags)
		}
	}
	many := "locals {\n n = [" + strings.Repeat("1 + 2 - 3,", 100_000) + "]\n}\n"
	if _, diags := schema.LoadSource("x.hcl", []byte(many), schema.Options{}); diags.HasErrors() {
		t.Errorf("many short expressions: %v", diags)
	}
}

// TestVastNumbers: a number that cty can compute with and takes minutes to write out is refused wherever it would be
// written out, and wherever more would be computed with it.
func TestVastNumbers(t *testing.T) {
	t.Parallel()
	const vast = `"1e99999999" * 1`
	for _, n := range []string{`true ? ` + vast + ` : "a"`, `false ? "a" : ` + vast, `{ (` + vast + `) = 1 }`,
		`{ ` + vast + ` = 1 }`, `{ a = 1 }[` + vast + `]`, `[1][` + vast + `]`, `{ for x in [1] : ` + vast + ` => x }`,
		vast + ` % 3`, `-"1e99999999" + 1`, `[for x in [1, 2] : 0.5 + "1e99999999"]`, `"${` + vast + `}"`,
		`tostring(` + vast + `)`, vast, `"1e-99999999" * 1 == 1 ? 1 : 2`} {
		_, diags := schema.LoadSource("x.hcl", []byte("locals {\n n = "+n+"\n}\n"), schema.Options{})
		if len(diags) != 1 || diags[0].Summary != "Number out of range" || diags[0].Subject == nil {
			t.Errorf("%s: %v", n, diags)
		}
	}
}

// A heredoc keeps the carriage returns of a file whose lines end in CR LF; a comment does not matter.
func TestAHeredocWithCarriageReturnsIsAWarning(t *testing.T) {
	t.Parallel()
	const text = "# cat <<EOT\nlocals {\n  h = <<-EOT\n    one\n  EOT\n}\ninference \"vllm\" \"p\" { model = local.h }\n"
	tests := map[string]struct{ src, want string }{
		"LF":                {src: text},
		"CR LF":             {src: strings.ReplaceAll(text, "\n", "\r\n"), want: "x.hcl:3,7-13"},
		"CR LF, no heredoc": {src: "# <<EOT\r\nlocals { a = 1 }\r\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource("x.hcl", []byte(tt.src), schema.Options{Plugins: fakePlugins(t)})
			got := ""
			for _, d := range diags {
				if d.Summary == "Carriage returns in text" {
					got = d.Subject.String()
				}
			}
			if got != tt.want || diags.HasErrors() {
				t.Errorf("the warning is at %q, expected %q (%v)", got, tt.want, diags)
			}
		})
	}
}
