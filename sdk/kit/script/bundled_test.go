package script_test

import (
	"embed"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

var (
	//go:embed testdata/bundled/bundled_words/*.py
	bundled embed.FS
	//go:embed testdata/bundled.json
	description []byte
)

func bundledSource() script.Source {
	return script.Source{Tree: script.Folder(bundled, "testdata/bundled"), Module: "bundled_words.letters"}
}

func TestTheDescriptionInTheBinaryIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "letters", bundledSource(), "testdata/bundled.json", "")
}

func TestAnEnvironmentInTheBinaryComplies(t *testing.T) {
	python(t)
	def := script.Bundled("letters", description, bundledSource())
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return scripttest.Body(t, def, nil) }
	plugintest.Compliance(t, def, plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
	})
}
