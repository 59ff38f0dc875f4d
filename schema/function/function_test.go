package function_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/function"
)

// evaluate runs an expression with every function, a secret, and an unknown value.
func evaluate(t *testing.T, files *function.Files, src string) (cty.Value, hcl.Diagnostics) {
	t.Helper()
	expr, diags := hclsyntax.ParseExpression([]byte(src), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return expr.Value(&hcl.EvalContext{
		Functions: function.All(function.Options{Files: files, Environ: map[string]string{"TOKEN": "t0p"},
			Sensitive: "sensitive", Ephemeral: "ephemeral"}),
		Variables: map[string]cty.Value{"unknown": cty.UnknownVal(cty.String), "any": cty.DynamicVal,
			"secret": cty.StringVal("s3cret").Mark("sensitive"),
			"list":   cty.UnknownVal(cty.List(cty.String)),
			"object": cty.ObjectVal(map[string]cty.Value{"a": cty.UnknownVal(cty.Number)})},
	})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "binary"), []byte{0xff, 0xfe}, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.tmpl"), []byte("${nope}"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := &function.Files{Dir: dir}
	for src, want := range map[string]string{
		`file("nowhere")`:              `there is no file nowhere`,
		`file("binary")`:               "not UTF-8",
		`file("large")`:                "pass the path instead",
		`file(".")`:                    "not a regular file",
		`filesha256("nowhere")`:        "there is no file",
		`templatefile("bad.tmpl", {})`: "nope",
		`templatefile("bad.tmpl", 3)`:  "expected an object",
		`env("NOWHERE")`:               "the environment variable NOWHERE is not set",
		`env("A", "b", "c")`:           "at most one default",
		`lookup({ a = 1 }, "b")`:       `there is no key "b"`,
		`lookup(3, "b")`:               "expected a map or object",
		`lookup({}, "b", 1, 2)`:        "at most one default",
		`index(["a"], "b")`:            "not in the list",
		`index("a", "b")`:              "expected a list",
		`length(3)`:                    "expected a list, set, map, object or string",
		`one([1, 2])`:                  "at most one element, got 2",
		`one("a")`:                     "expected a list or set",
		`coalesce(null, "")`:           "every argument is null or an empty string",
		`coalesce([1], "a")`:           "same type",
		`tonumber("x")`:                "tonumber",
		`tobool("maybe")`:              "tobool",
		`base64decode("?")`:            "not base64",
		`base64decode("//79")`:         "not UTF-8",
		`duration_seconds("soon")`:     "not a duration",
		`pathexpand("~/x")`:            "HOME is not set",
		`replace("a", "/(/", "b")`:     "parsing regexp",
		`fileset(".", "[")`:            "not a pattern",
		`format("%999999999d", 1)`:     "too large",
		`indent(99999999, "a\nb")`:     "too large",
		`setproduct(range(1000), range(1000), range(1000))`: "too large",
		`sum([null])`:     "is null",
		`regex("a", "b")`: "did not match",
	} {
		if v, diags := evaluate(t, files, src); !diags.HasErrors() || !strings.Contains(diags.Error(), want) {
			t.Errorf("%s: got %#v %v, want an error with %q", src, v, diags, want)
		}
	}
}

func TestUnknownValuesStayUnknown(t *testing.T) {
	t.Parallel()
	files := &function.Files{Dir: t.TempDir()}
	for _, src := range []string{`upper(unknown)`, `replace(unknown, "a", "b")`, `file(unknown)`, `length(list)`,
		`length(any)`, `lookup(any, "a")`, `lookup({ a = 1 }, unknown)`,
		`one(list)`, `one(any)`, `coalesce(unknown, "a")`, `tonumber(unknown)`, `toset(any)`, `index(list, "a")`,
		`index(["a"], unknown)`, `templatefile("x", { a = unknown })`,
		`format("%s", unknown)`, `join(",", list)`, `sha256(unknown)`, `sum(any)`, `alltrue(any)`,
		`setproduct(toset(list), ["a"])`, `env(unknown)`, `indent(1, unknown)`, `jsonencode(object)`} {
		v, diags := evaluate(t, files, src)
		v, _ = v.Unmark()
		if diags.HasErrors() || v.IsWhollyKnown() {
			t.Errorf("%s: got %#v %v, want an unknown value", src, v, diags)
		}
	}
	if v, diags := evaluate(t, files, `length(object)`); diags.HasErrors() || !v.RawEquals(cty.NumberIntVal(1)) {
		t.Errorf("the length of an object is known although its values are not: %#v %v", v, diags)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	files := &function.Files{Dir: t.TempDir()}
	for _, src := range []string{`upper(secret)`, `env("TOKEN")`, `"${env("TOKEN")}-x"`, `jsonencode({ a = secret })`,
		`sha256(secret)`, `format("%s", secret)`, `join(",", [secret])`, `replace(secret, "s", "x")`,
		`length(secret)`, `lookup({ a = secret }, "a")`, `coalesce(secret, "a")`, `tostring(secret)`, `one([secret])`,
		`try(secret, 1)`, `indent(1, secret)`, `sensitive(1)`, `env("NOWHERE", "x")`} {
		v, diags := evaluate(t, files, src)
		if diags.HasErrors() || !v.ContainsMarked() {
			t.Errorf("%s: got %#v %v, want a marked value", src, v, diags)
		}
	}
	for src, want := range map[string]cty.Value{`nonsensitive(secret)`: cty.StringVal("s3cret"),
		`nonsensitive([secret])[0]`: cty.StringVal("s3cret"), `issensitive(secret)`: cty.True,
		`issensitive(1)`: cty.False} {
		if v, diags := evaluate(t, files, src); diags.HasErrors() || !v.RawEquals(want) {
			t.Errorf("%s: got %#v %v", src, v, diags)
		}
	}
	if v, _ := evaluate(t, files, `env("TOKEN")`); !v.HasMark("ephemeral") || !v.HasMark("sensitive") {
		t.Error("what env yields is sensitive and ephemeral")
	}
}

func TestFilesRememberWhatTheyRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := &function.Files{Dir: dir}
	if _, diags := evaluate(t, files, `[file("a.txt"), fileexists("b.txt")]`); diags.HasErrors() {
		t.Fatal(diags)
	}
	if read := files.Read(); len(read) != 1 ||
		read[path] != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
		t.Errorf("%v", read)
	}
}

// A recipe reads regular files only, not the system's files about its processes, by whatever name.
func TestSystemFoldersAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for link, to := range map[string]string{"environ": "/proc/self/environ", "proc": "/proc", "cwd": "/proc/self/cwd",
		"fds": "/dev/fd", "dev": "/dev", "to": dir + "/proc"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("plain"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("plain", filepath.Join(dir, "ordinary")); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", strings.Count(dir, "/"))
	files := &function.Files{Dir: dir}
	for _, path := range []string{
		"/proc/self/environ", "/proc/1/environ", "/proc/self/fd/0", "/proc/self/root" + dir + "/plain",
		"/proc/self/cwd/function.go", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null",
		"/dev/stdin", "/dev/fd/0", "//proc/./self/../self/environ", up + "proc/self/environ", "environ",
		"proc/self/environ", "to/self/environ", "fds/0", "dev/stdin", "proc/self/root" + dir + "/plain",
	} {
		for _, call := range []string{"file(%q)", "filebase64(%q)", "filesha256(%q)", "templatefile(%q, {})",
			"fileexists(%q)"} {
			src := strings.ReplaceAll(call, "%q", `"`+path+`"`)
			if v, diags := evaluate(t, files, src); !diags.HasErrors() ||
				!strings.Contains(diags.Error(), "no ordinary files but a view of the system") {
				t.Errorf("%s: %#v, %v", src, v, diags)
			}
		}
	}
	for _, call := range []string{`fileset("/proc/self", "*")`, `fileset(".", "../../../../../../../../proc/self/*")`,
		`fileset("proc/self", "env*")`, `fileset("/", "proc/self/env*")`} {
		if v, diags := evaluate(t, files, call); !diags.HasErrors() {
			t.Errorf("%s: %#v", call, v)
		}
	}
	if v, diags := evaluate(t, files, `fileset(".", "*/self/environ")`); diags.HasErrors() || v.LengthInt() != 0 {
		t.Errorf("by links: %#v, %v", v, diags)
	}
	if v, diags := evaluate(t, files, `file("ordinary")`); diags.HasErrors() || v.AsString() != "plain" {
		t.Errorf("an ordinary link: %#v, %v", v, diags)
	}
	if len(files.Read()) != 1 {
		t.Errorf("read: %v", files.Read())
	}
}
