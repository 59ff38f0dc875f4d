package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/trust"
)

// A pull request that adds a configuration of uv to a checkout changes no digest of a project that is trusted.
func TestConfigurationOfACheckoutIsAskedAbout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files   map[string]string
		trusted string // a file whose digest is
		ignored bool   // uv reads no configuration
		refused bool
	}{
		"none":        {files: map[string]string{"sub/pyproject.toml": "[tool.uv]"}},
		"another":     {files: map[string]string{"uv.toml": "", "sub/pyproject.toml": ""}, ignored: true},
		"a trusted":   {files: map[string]string{"uv.toml": "", "sub/pyproject.toml": ""}, trusted: "uv.toml"},
		"a workspace": {files: map[string]string{"pyproject.toml": "[tool.uv.workspace]"}, ignored: true, refused: true},
		"a trusted workspace": {files: map[string]string{"pyproject.toml": "[tool.uv.workspace]"},
			trusted: "pyproject.toml"},
	} {
		root := t.TempDir()
		for _, dir := range []string{"sub", ".git"} {
			if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := newApp(strings.NewReader(""), io.Discard, io.Discard, []string{"XDG_STATE_HOME=" + t.TempDir()})
		if c.trusted != "" {
			digest, err := trust.OfFile(filepath.Join(root, c.trusted))
			if err != nil {
				t.Fatal(err)
			}
			a.gate().Trust(digest)
		}
		m := python.Maker{Dir: filepath.Join(root, "sub")}
		err := a.configureProject(&m, filepath.Join(m.Dir, "pyproject.toml"))
		if refused := err != nil && strings.Contains(err.Error(), "read by uv"); refused != c.refused ||
			err != nil && !refused || slices.Contains(m.Environ, "UV_NO_CONFIG=1") != c.ignored {
			t.Errorf("%s: %v, environment %v", name, err, m.Environ)
		}
	}
}
