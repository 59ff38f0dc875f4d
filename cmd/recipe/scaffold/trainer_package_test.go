package scaffold_test

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
)

// trainerRecipe trains a random model on what the tiny model samples: no weights go back, so no engine is needed.
const trainerRecipe = `recipe {
  required_plugins {
    mine = { source = "oci://REGISTRY/mine", version = "~> 1.0", verify = { key = "./author.pub" } }
  }
}

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 8
}

trainer "mine" "policy" {
  model        = "model"
  environments = [environment.arithmetic.sums]
  steps        = 2
  batch_size   = 8
  max_length   = 32
}
`

// TestATrainerInPythonIsAPackage: the program and its locked Python packages are published and signed; a user who has
// the key and an index of packages locks, verifies and trains with what is in the store. The one package of this test
// stands for PyTorch: it makes that of the tests' environment visible.
//
//docs:authors/trainer.md In Python
func TestATrainerInPythonIsAPackage(t *testing.T) {
	t.Parallel()
	needsPython(t)
	a := newAuthor(t)
	a.withUV()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://") + "/you"
	torch, err := exec.CommandContext(t.Context(), testPython, "-c",
		"import sysconfig; print(sysconfig.get_path('purelib'))").Output()
	if err != nil {
		t.Fatal(err)
	}
	wheelOf(t, a.dir, "recipe_torch", "1.0", "recipe_torch.pth", string(torch))
	a.environ = append(a.environ, "UV_NO_INDEX=1", "UV_FIND_LINKS="+filepath.Join(a.dir, "wheels"), "OMP_NUM_THREADS=1",
		"HF_HUB_OFFLINE=1", "REGISTRY="+address)

	folder := a.create(kind.Trainer, "mine", "python")
	for _, name := range []string{"requirements.in", "requirements.txt"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("recipe-torch>=1.0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.follow(folder, "go mod tidy")
	a.refused(folder, "uv pip compile", "recipe", "plugin", "build", ".", "--version", "1.0.0", "-o", "../mine.dist")
	a.follow(folder, `uv pip compile -q --universal --generate-hashes requirements.in -o requirements.txt
recipe plugin build . --version 1.0.0 -o ../mine.dist
cd ..
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out author.key
openssl pkey -in author.key -pubout -out author.pub
recipe plugin sign mine.dist --key author.key
recipe plugin push mine.dist oci://$REGISTRY/mine
mkdir user && cp author.pub user`)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}

	user := filepath.Join(a.dir, "user")
	recipe := strings.Replace(trainerRecipe, "REGISTRY", address, 1)
	if err := os.WriteFile(filepath.Join(user, "mine.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	a.environ = append(a.environ, "XDG_CACHE_HOME="+t.TempDir())
	workertest.Llama(t, filepath.Join(user, "model"), 128)
	a.refused(user, "it is not locked", "recipe", "validate", "mine.hcl")
	if out := a.run(user, "recipe", "init", "mine.hcl"); !strings.Contains(out, "trainer.mine.policy") {
		t.Errorf("init names no environment of the trainer:\n%s", out)
	}
	a.run(user, "recipe", "plugin", "verify", "mine.hcl")
	a.run(user, "recipe", "apply", "-y", "--locked", "mine.hcl")
	if out := a.run(user, "recipe", "lineage", "--json", "mine.hcl"); !strings.Contains(out, `"recipe-torch": "1.0"`) {
		t.Errorf("the lineage does not name the locked package:\n%s", out)
	}

	a.run(user, "recipe", "destroy", "-y", "-r", "mine.hcl")

	// The same version with other content is not what the author locked.
	wheelOf(t, a.dir, "recipe_torch", "1.0", "recipe_torch.pth", "# another\n"+string(torch))
	a.environ = append(a.environ, "XDG_CACHE_HOME="+t.TempDir(), "UV_CACHE_DIR="+t.TempDir())
	a.refused(user, "recipe-torch==1.0", "recipe", "init", "mine.hcl")
	a.refused(user, "environment has not been prepared", "recipe", "apply", "-y", "--locked", "mine.hcl")
}
