package scaffold_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/scaffold"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A trainer in Python trains a random model with real PyTorch. Its recipe serves with vLLM, which is more than a test
// of every machine can do: it is validated.
func TestThePythonTrainerScaffoldTrains(t *testing.T) {
	t.Parallel()
	needsPython(t)
	a := newAuthor(t)
	folder := a.create(kind.Trainer, "my-trainer", "python")
	a.environ = append(a.environ, "PYTHON="+testPython)
	out := a.follow(folder, "go mod tidy\ngo build -o bin/my-trainer .\ngo vet ./...\ngo test -v -run TestItTrains ./...")
	if !strings.Contains(out, "--- PASS: TestItTrains") {
		t.Errorf("its test did not run:\n%s", out)
	}
	a.run(folder, "recipe", "validate", "my-trainer.hcl")
}

func TestEveryKindHasAScaffold(t *testing.T) {
	t.Parallel()
	for _, k := range kind.All() {
		if k.Life() != kind.Config && len(scaffold.Languages(k)) == 0 {
			t.Errorf("recipe plugin new knows no %s plugin", k)
		}
	}
}

// A module of a release needs no sources: it requires the version, here and in CI. One of a build that is no release
// and does not lie in a checkout needs go get.
func TestWhereTheSDKComesFrom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plugin    scaffold.Plugin
		want, not []string // in all files together
	}{
		"a release": {scaffold.Plugin{Version: "v1.2.3"}, []string{"require github.com/recipe-rl/recipe v1.2.3",
			"go install github.com/recipe-rl/recipe/cmd/recipe@v1.2.3"}, []string{"replace ", "go get ", "git clone"}},
		"a checkout": {scaffold.Plugin{Version: "v0.0.0", SDK: "/src/recipe"}, []string{
			"replace github.com/recipe-rl/recipe => /src/recipe", "git clone --depth 1 " + scaffold.Repository},
			[]string{"go get github.com/recipe-rl/recipe@latest"}},
		"neither": {scaffold.Plugin{}, []string{"go get github.com/recipe-rl/recipe@latest", "git clone --depth 1 "},
			[]string{"recipe =>"}},
		"a release, Python": {scaffold.Plugin{Version: "v1.2.3", Language: "python"},
			[]string{"git+https://github.com/recipe-rl/recipe@v1.2.3#subdirectory=sdk/python"}, []string{"git clone"}},
		"a checkout, Python": {scaffold.Plugin{SDK: "/src/recipe", Language: "python"},
			[]string{"pip install pytest /src/recipe/sdk/python"}, []string{"git+https"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.plugin
			p.Kind, p.Name, p.Dir, p.Module = kind.Environment, "words", t.TempDir(), "words"
			if p.Language == "" {
				p.Language = "go"
			}
			files, err := p.Write()
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, file := range files {
				text, err := os.ReadFile(filepath.Join(p.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
			for _, want := range c.want {
				if !strings.Contains(all.String(), want) {
					t.Errorf("no file has %q", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(all.String(), not) {
					t.Errorf("a file has %q", not)
				}
			}
		})
	}
}
