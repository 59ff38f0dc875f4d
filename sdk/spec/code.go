package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

// Code is the value of an attribute with the tag `code`: a function in a file of the user's, "my_loss.py:my_loss". A
// relative path counts from the recipe. When a recipe is loaded the language reads the file and adds its digest,
// "my_loss.py:my_loss@sha256:…": a change of the file is then a change of the attribute, in the plan and in the run's
// record, and a plugin knows what was meant.
type Code struct {
	File, Function string
	Digest         string // hexadecimal SHA-256 of the file; empty in what a user has written
}

// Compiled when they are needed: few recipes name code.
var (
	codePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([^\x00-\x1f]+\.py):([A-Za-z_][A-Za-z0-9_]*)(?:@sha256:([0-9a-f]{64}))?$`)
	})
	definition = sync.OnceValue(func() *regexp.Regexp {
		const defined, assigned = `(?:async[ \t]+)?(?:def|class)[ \t]+([A-Za-z_]\w*)`,
			`([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=[^=]`
		return regexp.MustCompile(`(?m)^(?:` + defined + `|` + assigned + `)`)
	})
)

// ParseCode reads a code reference, with or without a digest.
func ParseCode(text string) (Code, error) {
	m := codePattern().FindStringSubmatch(text)
	if m == nil {
		return Code{}, fmt.Errorf("expected FILE.py:FUNCTION, got %q", text)
	}
	return Code{File: m[1], Function: m[2], Digest: m[3]}, nil
}

// String is the reference as ParseCode reads it.
func (c Code) String() string {
	text := c.File + ":" + c.Function
	if c.Digest != "" {
		text += "@sha256:" + c.Digest
	}
	return text
}

// Of returns the reference with the digest of a file's content.
func (c Code) Of(content []byte) Code {
	c.Digest = digest(content)
	return c
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Defines lists the names that a Python file defines at its top level, without running it: functions, classes and
// assignments.
func Defines(source []byte) []string {
	var names []string
	for _, m := range definition().FindAllSubmatch(source, -1) {
		names = append(names, string(m[1])+string(m[2]))
	}
	return names
}

// Pinned puts the file as it was when the recipe was applied into folder, and returns the path of that copy, whose name
// is the file's. Later starts of the same block use the copy, even if the file has changed since. recipeDir is where a
// relative path counts from. A file that is no longer the one that was applied is an error, as long as there is no
// copy.
func (c Code) Pinned(recipeDir, folder string) (string, error) {
	file := c.File
	if !filepath.IsAbs(file) {
		file = filepath.Join(recipeDir, file)
	}
	if c.Digest == "" {
		return file, nil
	}
	copied := filepath.Join(folder, c.Digest[:16], filepath.Base(file))
	if data, err := os.ReadFile(copied); err == nil && digest(data) == c.Digest {
		return copied, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", c.File, err)
	}
	if got := digest(data); got != c.Digest {
		return "", fmt.Errorf("%s has changed since the recipe was applied (sha256 %s then, %s now): "+
			"apply it again to use it as it is now", c.File, c.Digest[:12], got[:12])
	}
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return "", fmt.Errorf("copy %s: %w", c.File, err)
	}
	part := copied + ".part"
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return "", fmt.Errorf("copy %s: %w", c.File, err)
	}
	if err := os.Rename(part, copied); err != nil {
		return "", fmt.Errorf("copy %s: %w", c.File, err)
	}
	return copied, nil
}
