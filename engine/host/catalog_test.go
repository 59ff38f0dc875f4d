package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// binary makes a plugin binary that records each of its starts in a file beside it.
func binary(t *testing.T, comment string) (path string, starts func() int) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "ticker")
	script := fmt.Sprintf("#!/bin/sh\n# %s\necho x >> %s/starts\n%s=environment/ticker exec %s\n", comment, dir,
		protocol.BuiltinKey, os.Args[0])
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, func() int {
		data, err := os.ReadFile(filepath.Join(dir, "starts"))
		if err != nil {
			return 0
		}
		return strings.Count(string(data), "x")
	}
}

func TestCatalogOfBuiltins(t *testing.T) {
	t.Parallel()
	c, err := host.NewCatalog([]*sdk.Definition{definition()}, nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Lookup(kind.Environment, "ticker")
	if err != nil || s == nil || s.Config.Attribute("program") == nil || s.Outputs.Attribute("group_size") == nil ||
		!strings.HasPrefix(s.Digest, "sha256:") {
		t.Errorf("schema is %+v, %v", s, err)
	}
	for _, none := range []struct {
		k    kind.Kind
		name string
	}{{kind.Trainer, "ticker"}, {kind.Environment, "other"}} {
		if s, err := c.Lookup(none.k, none.name); s != nil || err != nil {
			t.Errorf("%s %q: %v, %v", none.k, none.name, s, err)
		}
	}
	if names := c.Names(kind.Environment); len(names) != 1 || names[0] != "ticker" {
		t.Errorf("names are %v", names)
	}
	if c.Definition(kind.Environment, "ticker") == nil {
		t.Error("the definition is not there")
	}
	argv, env, err := c.Command(kind.Environment, "ticker", "")
	if err != nil || len(argv) == 0 || len(env) != 1 || env[0] != protocol.BuiltinKey+"=environment/ticker" {
		t.Errorf("command %v with %v, %v", argv, env, err)
	}
	if _, _, err := c.Command(kind.Environment, "other", ""); err == nil {
		t.Error("a plugin that is not there has a command")
	}
	if _, err := host.NewCatalog([]*sdk.Definition{definition(), definition()}, nil, t.TempDir()); err == nil {
		t.Error("two plugins of one name were accepted")
	}
}

func TestABinaryIsAskedOnceForItsSchema(t *testing.T) {
	t.Parallel()
	path, starts := binary(t, "first build")
	cache := t.TempDir()
	look := func(path string) {
		t.Helper()
		c, err := host.NewCatalog(nil, map[string]string{"ticker": path}, cache)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s, err := c.Lookup(kind.Environment, "ticker")
			if err != nil || s == nil || s.Config.Attribute("program") == nil {
				t.Fatalf("schema is %+v, %v", s, err)
			}
		}
		if s, err := c.Lookup(kind.Trainer, "ticker"); s != nil || err != nil {
			t.Errorf("as a trainer: %v, %v", s, err)
		}
		if names := c.Names(kind.Environment); len(names) != 1 {
			t.Errorf("names are %v", names)
		}
		if argv, env, err := c.Command(kind.Environment, "ticker", ""); err != nil || argv[0] != path || len(env) != 0 {
			t.Errorf("command %v with %v, %v", argv, env, err)
		}
		// The packages and variables of a plugin are cached together with its schema.
		for gpu, want := range map[bool]string{false: "ticks==1", true: "ticks==2"} {
			if got := c.Packages(kind.Environment, "ticker", gpu); !slices.Equal(got.Requirements, []string{want}) {
				t.Errorf("gpu %v: it needs the packages %v, want %s", gpu, got.Requirements, want)
			}
		}
		if got := c.Environment(kind.Environment, "ticker", cty.NilVal,
			[]string{"TICKER_KEY=1", "TICKERS=2", "PATH=/bin"}); !slices.Equal(got,
			[]string{"TICKER_KEY=1", "PATH=/bin"}) {
			t.Errorf("its process gets %v", got)
		}
		if c.Definition(kind.Environment, "ticker") != nil {
			t.Error("a binary has a definition in this process")
		}
	}
	look(path)
	look(path)
	if n := starts(); n != 1 {
		t.Errorf("it was started %d times, want once", n)
	}
	rebuilt, again := binary(t, "second build")
	look(rebuilt)
	if n := again(); n != 1 {
		t.Errorf("the new build was started %d times, want once", n)
	}
}

func TestARecipeNamesABinaryByPath(t *testing.T) {
	t.Parallel()
	path, _ := binary(t, "")
	catalog, err := host.NewCatalog(nil, nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	catalog.Trust = &trust.Gate{}
	catalog.Trust.Trust(trust.All)
	dir := t.TempDir()
	if err := os.Symlink(path, filepath.Join(dir, "ticker")); err != nil {
		t.Fatal(err)
	}
	src :=
		"recipe {\n  required_plugins {\n    ticker = { source = \"./ticker\" }\n  }\n}\nenvironment \"ticker\" " +
			"\"t\" {}\n"
	if err := os.WriteFile(filepath.Join(dir, "r.hcl"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	r, diags := schema.Load(filepath.Join(dir, "r.hcl"), schema.Options{Plugins: catalog})
	if r == nil || len(r.Blocks) != 1 || r.Blocks[0].Schema.Name != "ticker" {
		t.Fatalf("the recipe does not use the binary that it names: %v", diags)
	}
	argv, _, err := catalog.Command(kind.Environment, "ticker", "")
	if err != nil || argv[0] != filepath.Join(dir, "ticker") {
		t.Errorf("it would be started by %v, %v", argv, err)
	}
}

func TestBinariesThatAreNoPlugins(t *testing.T) {
	t.Parallel()
	path, _ := binary(t, "")
	for name, c := range map[string]struct{ plugin, path, want string }{
		"missing":      {"ticker", "/no/such/file", "no such file"},
		"wrong name":   {"clock", path, `the binary is environment "ticker"`},
		"not a plugin": {"true", "/bin/true", "ask for its description"},
	} {
		catalog, err := host.NewCatalog(nil, map[string]string{c.plugin: c.path}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.Lookup(kind.Environment, c.plugin); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), c.plugin+" = ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
