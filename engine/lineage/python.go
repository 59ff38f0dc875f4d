package lineage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Python is the environment in which a block's program runs.
type Python struct {
	Version  string            `json:"version,omitempty"` // of the interpreter, where its environment says so
	Packages map[string]string `json:"packages"`          // versions by name; of one from a repository with the commit
}

// pythonOf reads what is installed beside an interpreter. It starts nothing: a wheel says name and version in the name
// of a folder. Nil: no interpreter, or nothing is installed there.
func pythonOf(interpreter string) *Python {
	if interpreter == "" {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(interpreter))
	p := &Python{Version: versionOf(filepath.Join(prefix, "pyvenv.cfg")), Packages: map[string]string{}}
	for _, pattern := range []string{"site-packages", "dist-packages"} {
		found, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", pattern, "*.dist-info"))
		for _, folder := range found {
			name, version, ok := strings.Cut(strings.TrimSuffix(filepath.Base(folder), ".dist-info"), "-")
			if !ok {
				continue
			}
			if commit := commitOf(folder); commit != "" {
				version += " (" + commit + ")"
			}
			p.Packages[strings.ReplaceAll(strings.ToLower(name), "_", "-")] = version
		}
	}
	if len(p.Packages) == 0 {
		return nil
	}
	return p
}

// versionOf reads the interpreter's version, as venv, virtualenv and uv write it.
func versionOf(config string) string {
	text, err := os.ReadFile(config)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if name = strings.TrimSpace(name); name == "version" || name == "version_info" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// commitOf is the commit of a package that was installed from a repository (PEP 610).
func commitOf(folder string) string {
	var origin struct {
		VCS struct {
			Commit string `json:"commit_id"`
		} `json:"vcs_info"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "direct_url.json"))
	if err != nil || json.Unmarshal(text, &origin) != nil {
		return ""
	}
	return origin.VCS.Commit
}
