package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// TestABundleHoldsNoSecret plants secrets in the environment, in sensitive variables and in the logs of a run, and
// looks for them in every file of the bundle.
//
//docs:runs.md A support bundle
func TestABundleHoldsNoSecret(t *testing.T) {
	// not parallel: it sets an environment variable
	const exported, printed = "planted-in-the-environment-71c0", "hf_PlantedInALogAbcdefghijklmnop"
	t.Setenv("SITE_API_TOKEN", exported)
	v := newVault(t, secretRecipe)
	v.recipe(true, "apply", "-y", "--var", "password="+canaryFlag, "secret.hcl")
	blocks, err := filepath.Glob(filepath.Join(v.dir, ".recipe", "secret", "blocks", "*"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks: %v, %v", blocks, err)
	}
	// What a foreign program prints is kept as it is in the block's own file.
	log := "loading with token " + canaryEnv + "\nHF_TOKEN=" + printed + " api_key: 'planted-setting-99'\n" +
		"wandb: login with key 0123456789abcdef0123456789abcdef01234567\nhttps://me:planted-password@host/x\n" +
		"an innocent line\n"
	if err := os.WriteFile(filepath.Join(blocks[0], "stderr"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(v.dir, ".recipe", "secret", "key"))
	if err != nil {
		t.Fatal(err)
	}

	v.recipe(true, "doctor", "--bundle", "b.tar.gz", "--var", "password="+canaryFlag, "secret.hcl")
	files := unpacked(t, filepath.Join(v.dir, "b.tar.gz"))
	var all strings.Builder
	for name, text := range files {
		v.clean(name, []byte(text))
		for _, planted := range []string{exported, printed, "planted-setting-99", "planted-password",
			"0123456789abcdef0123456789abcdef01234567", string(key)} {
			if strings.Contains(text, planted) {
				t.Errorf("%s holds %q", name, planted)
			}
		}
		all.WriteString(text)
	}
	for _, want := range []string{"an innocent line", `"type":"run_started"`, `inference "tiny" "policy"`, `"name": "disk"`,
		"SITE_API_TOKEN\n", "(secret)"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the bundle does not hold %q", want)
		}
	}
	for _, name := range []string{"README.txt", "run/run.json", "run/lineage.json", "recipe/secret.hcl", "doctor.json"} {
		if _, ok := files["recipe-bundle/"+name]; !ok {
			t.Errorf("the bundle has no %s", name)
		}
	}
	if strings.Contains(all.String(), `"type":"sample"`) && !strings.Contains(all.String(), "bytes)") {
		t.Error("the bundle holds what was sampled")
	}
	if info, err := os.Stat(filepath.Join(v.dir, "b.tar.gz")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle: %v, %v", info, err)
	}
}

// TestARecordNamesNoFileOfABundle: a run directory that came from elsewhere names a file beside it that is no recipe.
func TestARecordNamesNoFileOfABundle(t *testing.T) {
	t.Parallel()
	dir := state.DirOf(t.TempDir(), "r")
	for name, want := range map[string]bool{"x/words.hcl": true, "x/.env": false, ".env": false, "": false, "..": false,
		"a.tfvars": false, "a.vars.hcl": false, ".hcl": false, "..hcl/id_rsa": false} {
		if got := recordedRecipe(dir, &state.Run{File: name}) != ""; got != want {
			t.Errorf("the file %q is taken: %v", name, got)
		}
	}
}

// TestTokensOfARecordAreBounded: of a record of two megabytes, gigabytes of outdated tokens would be looked for.
func TestTokensOfARecordAreBounded(t *testing.T) {
	t.Parallel()
	dir := state.DirOf(t.TempDir(), "r")
	key := filepath.Join(string(dir), "key")
	if err := errors.Join(os.MkdirAll(string(dir), 0o700), os.WriteFile(key, randomKey(), 0o600)); err != nil {
		t.Fatal(err)
	}
	run := &state.Run{Blocks: map[addr.Block]*state.Block{}}
	var newest []string
	for i := range 100 {
		block := addr.Block{Kind: "trainer", Plugin: "tiny", Name: fmt.Sprintf("p%d", i)}
		run.Blocks[block] = &state.Block{Renewals: 1 << 40}
		token, err := dir.Token("control", block, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		newest = append(newest, token)
	}
	tokens := runTokens(dir, run)
	if len(tokens) > maxTokens+1 {
		t.Errorf("%d tokens are looked for", len(tokens))
	}
	for _, token := range newest {
		if !slices.Contains(tokens, token) {
			t.Fatal("a token of now is not looked for")
		}
	}
}

func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}

func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}
