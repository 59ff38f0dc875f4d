package schema_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema"
)

// bombKey names the file that the test binary loads instead of running tests.
const bombKey = "RECIPE_TEST_BOMB"

// local is a local value made by an expression.
func local(expr string) string { return "locals {\n  a = " + expr + "\n}\n" }

// lists are locals, each made of all before it in a form such as [%s].
func lists(n int, form, element string) string {
	text := "locals {\n"
	for i := range n {
		all := make([]string, i)
		for j := range i {
			all[j] = strings.ReplaceAll(element, "J", fmt.Sprint(j))
		}
		text += fmt.Sprintf("  a%d = "+form+"\n", i, strings.Join(all, ","))
	}
	return text + "}\n"
}

// aliases are lines of YAML, each of which repeats the one before as often as element, a form, is in all.
func aliases(n int, open, element, end string) string {
	text := "a0: &a0 {k: x}\n"
	for i := range n {
		alias := strings.ReplaceAll(element, "J", fmt.Sprint(i))
		text += fmt.Sprintf("a%d: &a%d %s%s%s\n", i+1, i+1, open, strings.Repeat(alias+", ", 8)+alias, end)
	}
	return local("yamldecode(<<E\n" + text + "E\n)")
}

// doubled are locals, each twice as large as the one before.
func doubled(form string) string {
	text := "locals {\n  a0 = \"aaaaaaaa\"\n"
	for i := range 40 {
		text += fmt.Sprintf("  a%d = %s\n", i+1, strings.ReplaceAll(form, "J", fmt.Sprint(i)))
	}
	return text + "}\n"
}

// many is an expression for a text that repeats a piece.
func many(piece string, n int) string {
	return fmt.Sprintf("join(\"\", [for i in range(%d) : %q])", n, piece)
}

// bombs are short recipes that would take gigabytes or minutes.
func bombs() map[string]string {
	rep := strings.Repeat
	return map[string]string{
		"aliases in lists":        aliases(12, "[", "*aJ", "]"),
		"aliases in sets of keys": aliases(12, "{<<: [", "*aJ", "], k: 1}"),
		"lists of all lists":      lists(200, "[%s]", "local.aJ"),
		"objects of all objects":  lists(200, "{%s}", "kJ = local.aJ"),
		"calls with all lists":    lists(200, "concat([%s], [1])", "local.aJ"),
		"outputs of large lists": lists(19, "[%s]", "local.aJ") + numbered(200,
			"output \"o%d\" {\n  value = [local.a18, local.a17]\n}\n"),
		"deep JSON":            local("jsondecode(" + many(rep("[", 1000), 2000) + ")"),
		"deep YAML":            local("yamldecode(" + many(rep("- ", 500), 2000) + ")"),
		"deep keys of YAML":    local("yamldecode(" + many(rep("? ", 500), 2000) + ")"),
		"deep brackets":        local(rep("(", 100_000) + "1" + rep(")", 100_000)),
		"deep blocks":          rep("x {\n", 100_000) + rep("}\n", 100_000),
		"deep templates":       local("\"" + rep("${\"", 100_000)),
		"many unary operators": local(rep("!", 1_000_000) + "true"),
		"a long heredoc":       "locals {\n  x = <<EOT\n" + rep("line\n", 1_000_000) + "EOT\n}\n",
		"a million mistakes":   rep("x=1\n", 500_000),
		"attributes":           rep("x=1\n", 4<<20-1),
		"elements":             local("[" + rep("1,", 8<<20-100) + "]"),
		"no characters":        rep("@", 16<<20),
		"a long number":        local(rep("9", 4_000_000)),
		"a vast number":        local("\"${1e1000000000}\""),
		"a power":              local("pow(9.99, 3.0e8)"),
		"wide formats":         local("[for i in range(100000) : format(\"%4000000d\", 1)]"),
		"a list of formats":    local("formatlist(\"%100000d\", range(100000))"),
		"an indent":            local("indent(1000000000, \"a\\nb\")"),
		"a range":              local("range(0, 1, 1e-12)"),
		"a product":            local("setproduct(range(1000), range(1000), range(1000))"),
		"a doubled text":       doubled("\"${local.aJ}${local.aJ}\""),
		"a doubled list":       doubled("[local.aJ, local.aJ]"),
		"nested loops":         local("[for i in range(1000) : [for j in range(1000) : [for k in range(1000) : k]]]"),
		"loops in templates":   local("\"%{ for i in range(1000) }%{ for j in range(1000) }x%{ endfor }%{ endfor }\""),
		"splats": local("[for i in range(50000) : {b = i}]") + "locals {\n" + numbered(2000,
			"  s%d = local.a[*].b\n") + "}\n",
		"a regular expression":      local("regexall(\"(a|aa)*b\", " + many("aaaaaaaaaa", 10_000) + ")"),
		"a replacement":             local("replace(" + many("a", 10_000) + ", \"\", " + many("b", 10_000) + ")"),
		"wide CSV":                  local("csvdecode(" + many("a,b\n", 100_000) + ")"),
		"a template file of itself": local("templatefile(\"self.tpl\", {})"),
		"an endless file":           local("file(\"zero\")"),
		"modules in modules":        modules("a"),
		"long unknown names":        local("local."+rep("b", 4_000_000)) + "locals {\n  " + rep("a", 4_000_000) + " = 1\n}\n",
		"many unknown names":        unknown(4000, 20_000),
		"unknown names and known":   unknown(499, 200_000),
		"code of many blocks":       reading("large.py:g", "rows.jsonl"),
		"arguments of many blocks":  reading("large.py:f", "rows.jsonl"),
		"functions of many blocks":  reading("large.py:f${count.index}", "rows.jsonl"),
		"columns of a table":        reading("small.py:g", "wide.csv"),
		"rows of a table":           reading("small.py:g", "long.csv"),
		"columns of Parquet":        reading("small.py:g", "nested.parquet"),
		"names of a missing file":   reading("small.py:g", "missing.csv"),
	}
}

// modules calls a module a thousand times.
func modules(name string) string {
	return "module \"m\" {\n  source = \"./" + name + "\"\n  count  = 1000\n}\n"
}

// unknown refers to names that are not there, beside as many that are.
func unknown(known, names int) string {
	return "locals {\n" + numbered(known, "  known_%06d_aaaaaaaaaaaaaaaa = 1\n") + "}\n" +
		local("["+numbered(names, "local.other_%06d_aaaaaaaaaaaaaaaa,")+"]")
}

// reading are many blocks that name the same files.
func reading(function, data string) string {
	return "environment \"mine\" \"e\" {\n  count = 3000\n  call = \"" + function + "\"\n  data = \"" + data +
		"\"\n  prompt = \"no\"\n}\n"
}

// readable are the files that reading names.
func readable() map[string]string {
	rep := strings.Repeat
	length := func(n int) string { return string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }
	nested := "\x15\x02\x19\xfc\xff\xff\xff\xff\x07" + rep("\x1c", 250_000)
	return map[string]string{
		"large.py":       "def f(" + numbered(100_000, "a%d, ") + "**more):\n    pass\n" + rep("x = 1\n", 500_000),
		"small.py":       "def f(completions):\n    pass\n",
		"rows.jsonl":     "{\"prompt\": \"a\"}\n",
		"wide.csv":       numbered(500_000, "c%d,") + "\n",
		"long.csv":       rep("a\n", 2_000_000),
		"nested.parquet": "PAR1" + nested + length(len(nested)) + "PAR1",
	}
}

func numbered(n int, form string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form, i)
	}
	return b.String()
}

// What would take all memory or time is refused before it does: each is loaded by a process of its own, with 20 s of
// processor and 2 GB of memory.
func TestBombsAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if path := os.Getenv(bombKey); path != "" {
		if _, diags := schema.Load(path, schema.Options{Plugins: readers{readingConfig(t)}}); !diags.HasErrors() {
			t.Error("it was loaded without an error")
		}
		return
	}
	limit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("without prlimit (util-linux), which limits memory and time")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "self.tpl"), []byte(`${templatefile("self.tpl", {})}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range readable() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"a": modules("b"), "a/b": modules("c"), "a/b/c": modules("d"),
		"a/b/c/d": "inference \"tiny\" \"p\" {}\n"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "m.hcl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero")); err != nil {
		t.Fatal(err)
	}
	for name, text := range bombs() {
		name = strings.ReplaceAll(name, " ", "_")
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name+".hcl")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			args := append(bombLimits(), os.Args[0], "-test.run=^TestBombsAreRefused$")
			cmd := exec.CommandContext(ctx, limit, args...)
			cmd.Env = append(os.Environ(), bombKey+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %.2000s", err, out)
			}
		})
	}
}
