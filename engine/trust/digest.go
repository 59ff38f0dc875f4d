package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// Bounds of what a digest covers: more is no environment of one file.
const (
	maxFiles = 2000
	maxBytes = 256 << 20
)

// MaxFile is how many bytes a program has at most.
const MaxFile = 4 << 30

// OfFile is the digest of one file.
func OfFile(path string) (string, error) {
	h := sha256.New()
	if err := copyRegular(h, path, MaxFile); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// OfPython is the digest of a Python file with the files of its folder that it may import: those whose module name
// stands anywhere in its text, and in theirs. Files are their paths relative to the folder, the file itself first. A
// file that the code finds by a name which it puts together is not covered, and Python is kept from importing it when
// the file is asked for its schema. Beside belongs to it, too: what names its packages.
func OfPython(path string, beside ...string) (digest string, files []string, err error) {
	c := closure{dir: filepath.Dir(path), seen: map[string]bool{}, left: maxBytes}
	if err := c.add(filepath.Base(path)); err != nil {
		return "", nil, err
	}
	for _, b := range beside {
		if err := c.project(b); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
	}
	sums := c.sums
	slices.Sort(sums)
	sum := sha256.Sum256([]byte("python " + filepath.Base(path) + "\n" + strings.Join(sums, "")))
	return "sha256:" + hex.EncodeToString(sum[:]), c.files, nil
}

// closure collects the files of a folder that a Python file may import.
type closure struct {
	dir   string
	seen  map[string]bool
	files []string
	sums  []string
	left  int64
}

// project hashes a file that names packages, and what its build may run of the folder.
func (c *closure) project(name string) error {
	text, err := c.read(name)
	if err != nil || filepath.Base(name) != "pyproject.toml" {
		return err
	}
	list := words(unescaped(text))
	list["setup"], list["hatch_build"] = true, true // which build backends run by their name
	for word := range list {
		if err := c.module(word); err != nil {
			return err
		}
	}
	return nil
}

// escape is a character of a string in TOML by its number.
var escape = lazyregexp.New(`\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2})`)

// unescaped is a text in TOML with the characters that escapes of it stand for.
func unescaped(text []byte) []byte {
	return escape.ReplaceAllFunc(text, func(e []byte) []byte {
		n, err := strconv.ParseUint(string(e[2:]), 16, 32)
		if err != nil || n > utf8.MaxRune {
			return e
		}
		return utf8.AppendRune(nil, rune(n))
	})
}

func (c *closure) read(name string) ([]byte, error) {
	if c.seen[name] {
		return nil, nil
	}
	if len(c.seen) >= maxFiles {
		return nil, fmt.Errorf("it may import more than %d files of its folder: move it into a folder of its own", maxFiles)
	}
	var text strings.Builder
	h := sha256.New()
	if err := copyRegular(io.MultiWriter(h, &text), filepath.Join(c.dir, name), c.left); err != nil {
		return nil, err
	}
	c.seen[name], c.left = true, c.left-int64(text.Len())
	c.files = append(c.files, name)
	c.sums = append(c.sums, fmt.Sprintf("%x %q\n", h.Sum(nil), name))
	return []byte(text.String()), nil
}

// add includes a file and, when it is Python, what it may import.
func (c *closure) add(name string) error {
	text, err := c.read(name)
	if err != nil || !strings.HasSuffix(name, ".py") {
		return err
	}
	if encoding := encodingOf(text); encoding != "" {
		return fmt.Errorf("%s is encoded as %.40q, which hides the names that stand in it: expected UTF-8", name, encoding)
	}
	// A file in a package names its neighbors without the package.
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		for word := range words(text) {
			if err := c.module(filepath.Join(dir, word)); err != nil {
				return err
			}
		}
		if dir == "." {
			return nil
		}
	}
}

// endings are those of files that Python imports.
func endings() []string { return []string{".py", ".pyc", ".so"} }

// module adds the module of that name: a file, a compiled one, or a folder with all that can be imported in it.
func (c *closure) module(name string) error {
	entries, err := filepath.Glob(filepath.Join(escaped(c.dir), escaped(name)) + ".*")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(endings(), filepath.Ext(e)) {
			rel, err := filepath.Rel(c.dir, e)
			if err != nil {
				return err
			}
			if err := c.add(rel); err != nil {
				return err
			}
		}
	}
	info, err := os.Stat(filepath.Join(c.dir, name))
	if err != nil || !info.IsDir() || c.seen[name+"/"] {
		return nil //nolint:nilerr // no such module
	}
	c.seen[name+"/"] = true
	return filepath.WalkDir(filepath.Join(c.dir, name), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "__pycache__"):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(endings(), filepath.Ext(path)):
			return nil
		}
		rel, err := filepath.Rel(c.dir, path)
		if err != nil {
			return err
		}
		return c.add(rel)
	})
}

func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// cookie is a comment by which Python takes a source for another encoding than UTF-8.
var cookie = lazyregexp.New(`^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)`)

// encodingOf is the encoding of a source that is neither UTF-8 nor a part of it; empty: it is.
func encodingOf(text []byte) string {
	lines := strings.SplitN(strings.TrimPrefix(string(text), "\ufeff"), "\n", 3)
	for _, line := range lines[:min(2, len(lines))] {
		for line := range strings.SplitSeq(line, "\r") {
			found := cookie.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			name := strings.ReplaceAll(strings.ToLower(found[1]), "_", "-")
			if !slices.Contains([]string{"utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii", "utf-8-unix"}, name) {
				return name
			}
		}
	}
	return ""
}

// words are the names in a text, as Python forms them. Python takes different characters for the same letter, so a text
// is also read as its compatibility form.
func words(text []byte) map[string]bool {
	out := map[string]bool{}
	all := string(text)
	if same := norm.NFKC.String(all); same != all {
		all += "\n" + same
	}
	for _, w := range strings.FieldsFunc(all, func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127)
	}) {
		if w[0] < '0' || w[0] > '9' {
			out[w] = true
		}
	}
	return out
}

// copyRegular copies a regular file of at most limit bytes; it never blocks on a pipe.
func copyRegular(to io.Writer, path string, limit int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		if info.IsDir() {
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
		}
		return fmt.Errorf("%s is no regular file", path)
	}
	if info.Size() > limit { // a sparse file would be read up to the limit first
		return fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	n, err := io.Copy(to, io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return err
}
