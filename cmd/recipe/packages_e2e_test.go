package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/packages/signature/standin"
)

// published is a workshop with a registry that has the environment of recipes/words.hcl as version 1.0.0, and the
// recipe that requires it.
func published(t *testing.T) (w *workshop, source string) {
	t.Helper()
	w = newWords(t)
	w.env = []string{"XDG_CACHE_HOME=" + t.TempDir()}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	source = "oci://" + strings.TrimPrefix(server.URL, "http://") + "/acme/words"
	w.recipe("plugin", "push", "words.py", source+":1.0.0")
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("quickstart.hcl", strings.NewReplacer(`source = "./words.py"`,
		`source = "`+source+`", version = "~> 1.0"`, "steps         = 1000000", "steps         = 2").
		Replace(string(recipe)))
	if err := os.Rename(filepath.Join(w.dir, "words.py"), filepath.Join(w.dir, "elsewhere.py")); err != nil {
		t.Fatal(err)
	}
	return w, source
}

// refused runs a command that must fail, and returns what it prints.
func (w *workshop) refused(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err == nil {
		w.t.Errorf("recipe %s was not refused:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

// TestAPackageFromBuildToApply: a plugin is published, locked by apply, which says so, and used.
func TestAPackageFromBuildToApply(t *testing.T) {
	t.Parallel()
	w, source := published(t)
	if out := w.refused("validate", "quickstart.hcl"); !strings.Contains(out, "it is not locked") {
		t.Errorf("a plugin that is not locked:\n%s", out)
	}
	if out := w.refused("apply", "-y", "--locked", "quickstart.hcl"); !strings.Contains(out, "--locked") {
		t.Errorf("apply --locked without a lock:\n%s", out)
	}
	if out := w.recipe("apply", "-y", "quickstart.hcl"); !strings.Contains(out,
		"Locked plugin words at 1.0.0, from "+source) {
		t.Errorf("apply does not say what it locked:\n%s", out)
	}
	if out := w.recipe("plugin", "list", source); out != "1.0.0\n" {
		t.Errorf("plugin list: %q", out)
	}
}

// TestASavedPlanIsBoundToTheLock: another version of a package is another plan.
func TestASavedPlanIsBoundToTheLock(t *testing.T) {
	t.Parallel()
	w, source := published(t)
	w.recipe("init", "quickstart.hcl")
	w.recipe("plan", "quickstart.hcl", "--out", "saved.plan")
	code, err := os.ReadFile(filepath.Join(w.dir, "elsewhere.py"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("words.py", string(code)+"\n# changed\n")
	w.recipe("plugin", "push", "words.py", source+":1.1.0")
	w.recipe("init", "--upgrade", "quickstart.hcl")
	if out := w.refused("apply", "--plan", "saved.plan"); !strings.Contains(out, "plugin environment/words is now") {
		t.Errorf("a saved plan with another lock:\n%s", out)
	}
}

// keys writes key pairs: NAME.key and NAME.pub.
func (w *workshop) keys(names ...string) {
	w.t.Helper()
	for _, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			w.t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			w.t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
		w.write(name+".pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	}
}

// TestASignatureDoesNotCoverAnotherProgram: the digests of a version that nobody has signed, beside the index and the
// signature of one that is signed, are refused by every command, with both in the cache and no registry.
func TestASignatureDoesNotCoverAnotherProgram(t *testing.T) {
	t.Parallel()
	w, source := published(t)
	w.keys("author")
	code, err := os.ReadFile(filepath.Join(w.dir, "elsewhere.py"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("words.py", string(code)+"\n# another program\n")
	w.recipe("plugin", "push", "words.py", source+":1.1.0")
	w.recipe("plugin", "sign", source+":1.0.0", "--key", "author.key")
	w.recipe("init", "quickstart.hcl")
	file := filepath.Join(w.dir, "quickstart.lock.hcl")
	evil, err := packages.ReadLock(file)
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("quickstart.hcl", strings.Replace(string(recipe), `version = "~> 1.0"`,
		`version = "1.0.0", verify = { key = "./author.pub" }`, 1))
	w.recipe("init", "quickstart.hcl")
	l, err := packages.ReadLock(file)
	if err != nil {
		t.Fatal(err)
	}
	e := l.Plugins["words"]
	e.Schema, e.Platforms = evil.Plugins["words"].Schema, evil.Plugins["words"].Platforms
	l.Plugins["words"] = e
	if err := l.Write(file); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plugin verify", "validate", "plan", "init", "init --locked", "apply -y",
		"apply -y --locked"} {
		out := w.refused(append(strings.Fields(command), "quickstart.hcl")...)
		if !strings.Contains(out, "the lock contradicts itself") || !strings.Contains(out, "version control") {
			t.Errorf("%s:\n%s", command, out)
		}
	}
}

// TestThePlatformTeamDemandsASignature: the settings refuse a package until the right key has signed it, and the lock
// of one that was used before.
func TestThePlatformTeamDemandsASignature(t *testing.T) {
	t.Parallel()
	w, source := published(t)
	w.recipe("init", "quickstart.hcl") // nobody demands anything yet
	w.keys("author", "stranger")
	w.write("settings.hcl", `verify "" { key = "author.pub" }`)
	w.env = append(w.env, "RECIPE_CONFIG="+filepath.Join(w.dir, "settings.hcl"))
	for _, command := range [][]string{{"plan"}, {"apply", "-y"}, {"init"}, {"plugin", "verify"}} {
		if out := w.refused(append(command, "quickstart.hcl")...); !strings.Contains(out, "has to be, by key") {
			t.Errorf("%v of a package that is not signed:\n%s", command, out)
		}
	}
	if out := w.refused("plugin", "sign", "quickstart.hcl", "--key", "author.key"); !strings.Contains(out,
		"quickstart.hcl is neither the layout of a package nor a version in a registry") {
		t.Errorf("plugin sign of a recipe:\n%s", out)
	}
	w.recipe("plugin", "sign", source+":1.0.0", "--key", "stranger.key")
	if out := w.refused("init", "quickstart.hcl"); !strings.Contains(out, "none of its 1 signatures") {
		t.Errorf("a package that somebody else has signed:\n%s", out)
	}
	w.recipe("plugin", "sign", source+":1.0.0", "--key", "author.key")
	w.recipe("init", "quickstart.hcl")
	w.recipe("plan", "quickstart.hcl")
	if out := w.recipe("plugin", "verify", "quickstart.hcl"); !strings.Contains(out, "signed by key sha256:") {
		t.Errorf("plugin verify:\n%s", out)
	}
	w.recipe("plugin", "verify", source+":1.0.0", "--key", "author.pub")
}

// TestAModuleFromPushToApply: a recipe with its plugin, a Python file that imports one beside it, is published as a
// module; another recipe calls it, and trains with it twice.
func TestAModuleFromPushToApply(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.env = []string{"XDG_CACHE_HOME=" + t.TempDir()}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	source := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/acme/train"
	text := func(name string) string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "train"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("train/train.hcl", "variable \"steps\" { type = number }\n"+
		strings.Replace(text("quickstart.hcl"), "steps         = 1000000", "steps         = var.steps", 1)+
		"output \"checkpoint\" { value = trainer.tiny.policy.checkpoint }\n")
	w.write("train/words.py", "import beside\n"+text("words.py"))
	w.write("train/beside.py", "")
	w.write("quickstart.hcl", `module "train" {
  source  = "`+source+`"
  version = "~> 1.0"
  steps   = 2
}
output "checkpoint" { value = module.train.checkpoint }
`)
	if out := w.refused("module", "push", "train", source); !strings.Contains(out, ":VERSION") {
		t.Errorf("a module without a version:\n%s", out)
	}
	w.recipe("module", "push", "train", source+":1.0.0")
	if out := w.refused("validate", "quickstart.hcl"); !strings.Contains(out, "it is not locked") {
		t.Errorf("a module that is not locked:\n%s", out)
	}
	if out := w.recipe("apply", "-y", "quickstart.hcl"); !strings.Contains(out,
		"Locked module train at 1.0.0, from "+source) {
		t.Errorf("apply does not say what it locked:\n%s", out)
	}
	if out := w.recipe("plugin", "verify", "quickstart.hcl"); !strings.Contains(out, "module train 1.0.0 is as locked") {
		t.Errorf("plugin verify after a run:\n%s", out)
	}
	server.Close()
	w.recipe("destroy", "-y")
	w.recipe("apply", "-y", "--locked", "quickstart.hcl")
}

// TestAPackageThatACIJobHasSigned: keyless, before it is published, and demanded by the settings.
func TestAPackageThatACIJobHasSigned(t *testing.T) {
	t.Parallel()
	w, source := published(t)
	services := standin.New(t)
	const identity = "https://ci.example.com/acme/words/release"
	w.write("settings.hcl", `verify "" {
  identity     = "`+identity+`"
  issuer       = "`+standin.Issuer+`"
  trusted_root = "`+services.TrustedRoot+`"
}
`)
	w.env = append(w.env, "RECIPE_CONFIG="+filepath.Join(w.dir, "settings.hcl"))
	if err := os.Rename(filepath.Join(w.dir, "elsewhere.py"), filepath.Join(w.dir, "words.py")); err != nil {
		t.Fatal(err)
	}
	w.recipe("plugin", "build", "words.py", "--version", "1.1.0", "-o", "dist")
	sign := []string{"plugin", "sign", "dist", "--keyless", "--signing-config", services.Config}
	if out := w.refused(sign...); !strings.Contains(out, "SIGSTORE_ID_TOKEN") {
		t.Errorf("without a token:\n%s", out)
	}
	w.write("token", services.Token(identity)+"\n")
	w.recipe(append(sign, "--identity-token", "token")...)
	w.recipe("plugin", "push", "dist", source)
	w.recipe("init", "quickstart.hcl")
	if out := w.recipe("plugin", "verify", "quickstart.hcl"); !strings.Contains(out, "as locked; signed by "+identity) {
		t.Errorf("plugin verify:\n%s", out)
	}

	w.env = append(w.env, "SIGSTORE_ID_TOKEN="+services.Token("https://ci.example.com/acme/words/branch"))
	w.recipe("plugin", "push", "words.py", source+":1.2.0")
	w.recipe("plugin", "sign", source+":1.2.0", "--keyless", "--signing-config", services.Config)
	if out := w.refused("init", "--upgrade", "quickstart.hcl"); !strings.Contains(out, "none of its 1 signatures is by") {
		t.Errorf("another job:\n%s", out)
	}
}
