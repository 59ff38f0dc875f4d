package script_test

import (
	"embed"
	"io/fs"
	"testing"

	"github.com/recipe-rl/recipe/sdk/environment/script"
	"github.com/recipe-rl/recipe/sdk/environment/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

var (
	//go:embed testdata/bundled/bundled_words/*.py
	bundled embed.FS
	//go:embed testdata/bundled.json
	description []byte
)

func bundledSource(t *testing.T) script.Source {
	t.Helper()
	tree, err := fs.Sub(bundled, "testdata/bundled")
	if err != nil {
		t.Fatal(err)
	}
	return script.Source{Tree: tree, Module: "bundled_words.letters"}
}

func TestTheDescriptionInTheBinaryIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "letters", bundledSource(t), "testdata/bundled.json", "")
}

func TestAnEnvironmentInTheBinaryComplies(t *testing.T) {
	python(t)
	def := script.Bundled("letters", description, bundledSource(t))
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return scripttest.Body(t, def, nil) }
	plugintest.Compliance(t, def, plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
	})
}
