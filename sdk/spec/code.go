package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/internal/regular"
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
	modulePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)$`)
	})
	imported = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(?:from[ \t]+[\w.]+[ \t]+import[ \t]*(?:\(([^)]*)\)|([^\n(#]+)))`)
	})
	comments = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)#.*$|\\$`) })
	open     = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(?:from[ \t]+[\w.]+[ \t]+import[ \t]*\*|def[ \t]+__getattr__|globals\(\))`)
	})
	branches   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(?:if|try|with|match)\b[^\n]*:`) })
	definition = sync.OnceValue(func() *regexp.Regexp {
		const defined, assigned = `(?:async[ \t]+)?(?:def|class)[ \t]+([A-Za-z_]\w*)`,
			`([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=[^=]`
		return regexp.MustCompile(`(?m)^(?:` + defined + `|` + assigned + `)`)
	})
)

// Callable is the value of an attribute of FormatCallable: a function in a file, as Code, or in a module that the
// block's Python imports, "mylib.rewards:accuracy".
type Callable struct {
	Code
	Module string // empty: it is in a file
}

// ParseCallable reads a reference to a function in a file or in a module.
func ParseCallable(text string) (Callable, error) {
	if code, err := ParseCode(text); err == nil {
		return Callable{Code: code}, nil
	}
	m := modulePattern().FindStringSubmatch(text)
	if m == nil {
		return Callable{}, fmt.Errorf("expected FILE.py:FUNCTION or MODULE:FUNCTION, got %q", text)
	}
	return Callable{Code{Function: m[2]}, m[1]}, nil
}

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

// Defines lists the names that a Python file defines at its top level, without running it: functions, classes,
// assignments and what it imports.
func Defines(source []byte) []string {
	var names []string
	for _, m := range definition().FindAllSubmatch(source, -1) {
		names = append(names, string(m[1])+string(m[2]))
	}
	for _, m := range imported().FindAllSubmatch(source, -1) {
		list := comments().ReplaceAllString(string(m[1])+string(m[2]), "")
		for _, one := range strings.Split(list, ",") {
			words := strings.Fields(one) // a, or a as b
			if (len(words) == 1 || len(words) == 3) && words[0] != "*" {
				names = append(names, words[len(words)-1])
			}
		}
	}
	return names
}

// MayDefine says whether a Python file may define a name at its top level in a way that Defines cannot read: it imports
// all of a module, or binds the name in a branch such as try and except.
func MayDefine(source []byte, name string) bool {
	if open().Match(source) {
		return true
	}
	bound := regexp.MustCompile(`(?m)^[ \t]+(?:(?:async[ \t]+)?(?:def|class)[ \t]+` + name + `\b|` + name +
		`[ \t]*=[^=]|from[ \t]+[\w.]+[ \t]+import[^\n]*\b` + name + `\b)`)
	return branches().Match(source) && bound.Match(source)
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
	if err := regular.WriteFile(part, data); err != nil {
		return "", fmt.Errorf("copy %s: %w", c.File, err)
	}
	if err := os.Rename(part, copied); err != nil {
		return "", fmt.Errorf("copy %s: %w", c.File, err)
	}
	return copied, nil
}
