package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/ui"
)

// Canaries are secrets that enter a run in every possible way. None may be found anywhere afterwards.
const (
	canaryEnv  = "canary-of-env-5d1f0c77"
	canaryVar  = "canary-of-variable-9be2a431"
	canaryFlag = "canary-of-flag-c3307e5a"
)

const secretRecipe = `
variable "token" {
  type      = string
  sensitive = true
}
variable "password" {
  type      = string
  sensitive = true
}
variable "model" {
  type    = string
  default = "tiny"
}
variable "steps" {
  type    = number
  default = 3
}
inference "tiny" "policy" {
  model                 = var.model
  environment_variables = { HUB_TOKEN = env("CANARY"), OTHER = "x-${var.token}" }
}
environment "arithmetic" "sums" {
  inference             = inference.tiny.policy
  environment_variables = { PASSWORD = var.password }
}
trainer "tiny" "policy" {
  environments          = [environment.arithmetic.sums]
  steps                 = var.steps
  environment_variables = { HUB_TOKEN = env("CANARY") }
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
output "checkpoint" { value = trainer.tiny.policy.checkpoint }
output "credentials" {
  value     = { hub = env("CANARY"), token = var.token, password = var.password }
  sensitive = true
}
`

// vault runs commands that know the canaries and searches what they leave behind.
type vault struct {
	t   *testing.T
	dir string
}

func newVault(t *testing.T, recipe string) *vault {
	t.Helper()
	v := &vault{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(v.dir, "secret.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	return v
}

// recipe runs a command, checks its exit code, and searches its output.
func (v *vault) recipe(succeeds bool, args ...string) string {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "recipe", args...)
	cmd.Dir = v.dir
	cmd.Env = append(os.Environ(), "CANARY="+canaryEnv, "RECIPE_VAR_token="+canaryVar)
	out, err := cmd.CombinedOutput()
	if (err == nil) != succeeds {
		v.t.Fatalf("recipe %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	v.clean("what recipe "+args[0]+" says", out)
	return string(out)
}

func (v *vault) clean(where string, text []byte) {
	v.t.Helper()
	for _, canary := range []string{canaryEnv, canaryVar, canaryFlag, strings.ToUpper(canaryVar),
		base64.StdEncoding.EncodeToString([]byte(canaryVar))} {
		if i := bytes.Index(text, []byte(canary)); i >= 0 {
			v.t.Errorf("%s holds %s: %q", where, canary, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}

// search reads every file of the run, and the arguments of every process of this machine.
func (v *vault) search() {
	v.t.Helper()
	files := 0
	err := filepath.WalkDir(v.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // a file that was just removed holds nothing
		}
		text, err := os.ReadFile(path)
		if err == nil {
			files++
			v.clean(path, text)
		}
		return nil
	})
	if err != nil || files == 0 {
		v.t.Errorf("%d files were searched: %v", files, err)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || bytes.Contains(text, []byte("--var\x00")) {
			continue // gone, or typed by the person: that is the price of --var
		}
		v.clean(path, text)
	}
}

// page searches what the dashboard answers.
func (v *vault) page() {
	v.t.Helper()
	server, err := ui.New(ui.Options{Runs: func() (map[string]state.Dir, error) {
		return map[string]state.Dir{"secret": state.DirOf(v.dir, "secret")}, nil
	}})
	if err != nil {
		v.t.Fatal(err)
	}
	defer server.Close()
	for _, path := range []string{"/", "/api/runs", "/api/runs/secret", "/api/runs/secret/config",
		"/api/runs/secret/logs?level=debug", "/api/runs/secret/samples", "/api/runs/secret/timeline", "/metrics",
		"/api/runs/secret/series?name=trainer.tiny.policy+reward"} {
		r := httptest.NewRequestWithContext(v.t.Context(), http.MethodGet, path, nil)
		r.Host = "127.0.0.1"
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			v.t.Errorf("the dashboard answers %s with %d: %s", path, w.Code, w.Body)
		}
		v.clean("the dashboard's "+path, w.Body.Bytes())
	}
}

//docs:survival.md Files of a run
func TestSecretsOfARunAreFoundNowhere(t *testing.T) {
	t.Parallel()
	v := newVault(t, secretRecipe)
	given := []string{"--var", "password=" + canaryFlag, "secret.hcl"}
	with := func(args ...string) []string { return append(args, given...) }
	v.recipe(true, with("validate")...)
	v.recipe(true, with("plan")...)
	v.recipe(true, with("plan", "--json")...)
	v.recipe(true, with("plan", "--out", "saved.json")...)
	v.recipe(true, with("graph", "--format", "json")...)
	v.recipe(true, with("apply", "-y")...)
	v.search()
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"show"}, {"show", "--json"}, {"show", "inference.tiny.policy"}, {"logs"},
		{"logs", "--json"}, {"output"}, {"output", "--json"}, {"report", "-o", "-", ".recipe/secret"}, {"lineage"},
	} {
		v.recipe(true, args...)
	}
	v.page()
	v.recipe(true, with("apply", "-y", "--json", "--var", "steps=5")...)
	v.recipe(true, with("plan")...)
	v.search()
}

//docs:survival.md Files of a run
func TestSecretsOfADetachedRunAreFoundNowhere(t *testing.T) {
	t.Parallel()
	v := newVault(t, secretRecipe)
	apply := func(steps string) {
		v.recipe(true, "apply", "-y", "--detach", "--var", "password="+canaryFlag, "--var", "steps="+steps,
			"secret.hcl")
	}
	apply("100000")
	defer v.recipe(true, "destroy", "-y")
	v.search()
	apply("200000") // sent to the live engine over its socket
	v.recipe(true, "restart", "inference.tiny.policy")
	v.recipe(true, "status", "--json")
	v.recipe(true, "show", "--json")
	v.recipe(true, "logs")
	v.page()
	v.search()
	v.recipe(true, "stop")
	v.search()
}

// The hardest case is a plugin that repeats a secret: a model of that name does not exist.
//
//docs:survival.md Files of a run
func TestASecretThatAPluginRepeatsIsBlankedOut(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"variable": "var.token", "environment": `env("CANARY")`,
		"text": `"/nowhere/${var.token}/model"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, strings.Replace(secretRecipe, "= var.model", "= "+value, 1))
			out := v.recipe(false, "apply", "-y", "--var", "password="+canaryFlag, "secret.hcl")
			if !strings.Contains(out, "inference.tiny.policy failed") || !strings.Contains(out, "(sensitive)") {
				t.Errorf("the error does not say what failed, with the secret blanked out:\n%s", out)
			}
			v.recipe(true, "logs")
			v.recipe(true, "status", "--json")
			v.recipe(true, "show", "--json")
			v.search()
		})
	}
	for name, recipe := range map[string]string{
		"type": strings.Replace(secretRecipe, "steps                 = var.steps",
			"steps                 = var.token", 1),
		"precondition": strings.Replace(secretRecipe, "model                 = var.model",
			"model = var.model\n lifecycle {\n precondition {\n condition = var.token == \"x\"\n error_message = "+
				"\"the token is ${var.token}\"\n }\n }", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, recipe)
			v.recipe(false, "apply", "-y", "--var", "password="+canaryFlag, "secret.hcl")
			v.search()
		})
	}
}
