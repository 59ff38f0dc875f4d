package interpreter

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

var (
	begun        = lazyregexp.New(`(?m)^# /// script[ \t]*\r?$`)
	metadata     = lazyregexp.New(`(?m)^# /// script[ \t]*\r?\n((?:^#(?:| .*)\r?\n)+?)^# ///[ \t]*\r?$`)
	dependencies = lazyregexp.New(`(?ms)^dependencies\s*=\s*\[(.*?)^?\]`)
	quoted       = lazyregexp.New(`(?m)^[^#"']*["']`)
)

// ReadMetadata says whether a Python file has metadata in a comment (PEP 723) that lists packages. uv reads what they
// are. The error says that a block has no end.
func ReadMetadata(content []byte) (needs bool, err error) {
	m := metadata.FindStringSubmatch(string(content) + "\n")
	if m == nil {
		if begun.MatchString(string(content)) {
			return false, errors.New(`the comment "# /// script" has no end: every line after it begins with #, the last ` +
				`is "# ///"`)
		}
		return false, nil
	}
	var text strings.Builder
	for line := range strings.Lines(m[1]) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	list := dependencies.FindStringSubmatch(text.String())
	return len(list) > 1 && quoted.MatchString(list[1]), nil
}

// LockFile is the file in which uv writes the exact versions of a project's packages: beside a Python file with
// metadata, or beside a pyproject.toml.
func LockFile(project string) string {
	if filepath.Ext(project) == ".py" {
		return project + ".lock"
	}
	return filepath.Join(filepath.Dir(project), "uv.lock")
}

// maxText bounds a Python file, what names packages, and a lock.
const maxText = 64 << 20

// LockDigest identifies the packages of a project: the hash over what it asks for and over its lock, if there is one.
// Empty for packages that are no project.
func LockDigest(p sdk.Packages) (string, error) {
	if p.Project == "" {
		return "", nil
	}
	sum := sha256.New()
	for _, path := range []string{p.Project, LockFile(p.Project)} {
		content, err := regular.FollowFile(path, maxText)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != p.Project:
			continue
		case err != nil:
			return "", fmt.Errorf("read what the packages of %s are: %w", p.Project, err)
		case path == p.Project && filepath.Ext(path) == ".py": // its code is not what is installed
			content = []byte(metadata.FindString(string(content) + "\n"))
		}
		_, _ = fmt.Fprintf(sum, "%d\n", len(content))
		_, _ = sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
