package interpreter

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// Editable says whether a requirement asks for a package to be installed so that edits of its source take effect at
// once, and its path: "-e ./mypkg" or "--editable ./mypkg".
func Editable(requirement string) (what string, ok bool) {
	requirement = strings.TrimSpace(requirement)
	for _, option := range []string{"-e ", "--editable ", "--editable="} {
		if rest, found := strings.CutPrefix(requirement, option); found {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// keyed is a requirement as it is hashed: one that names a path becomes the absolute path and a digest of the files
// there, so that it is the same in every recipe, and another once they change. Paths count from dir.
func keyed(requirement, dir string) (string, error) {
	what, editable := Editable(requirement)
	if !editable {
		what = strings.TrimSpace(requirement)
		if strings.HasPrefix(what, "-") {
			return "", &sdk.Error{
				Summary: fmt.Sprintf("runtime.requirements holds the option %q", what),
				Remedy:  `list packages, such as "vllm==0.24.0" or "./mypkg"; the only option allowed is -e PATH`,
				Path:    requirements(),
			}
		}
	}
	local, err := localPath(what)
	if err != nil {
		return "", misnamed(requirement, err)
	}
	if local == "" {
		return requirement, nil
	}
	if local, err = filepath.Abs(Absolute(local, dir)); err != nil {
		return "", misnamed(requirement, err)
	}
	sum := sha256.New()
	if err := digest(sum, local, editable); err != nil {
		return "", misnamed(requirement, err)
	}
	return fmt.Sprintf("%s %s sha256:%s", requirement, local, hex.EncodeToString(sum.Sum(nil))), nil
}

// Keyed is a requirement with the content of what it names by a path, so that another text is another content. Paths
// count from dir.
func Keyed(requirement, dir string) (string, error) { return keyed(requirement, dir) }

// CheckIndexed refuses a requirement that names no package of an index: an option, a path, or more than one line. A
// plugin that was built elsewhere has no other.
func CheckIndexed(requirement string) error {
	_, editable := Editable(requirement)
	local, err := localPath(strings.TrimSpace(requirement))
	if err == nil && (editable || local != "" || strings.HasPrefix(strings.TrimSpace(requirement), "-") ||
		strings.ContainsAny(requirement, "\r\n")) {
		err = errors.New(`expected the name of a package in an index, such as "torch==2.13.0"`)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", requirement, err)
	}
	return nil
}

func misnamed(requirement string, err error) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("runtime.requirements = %q: %v", requirement, err), Err: err, Path: requirements(),
		Remedy: "name a wheel, an archive, or a folder with a pyproject.toml or setup.py; relative paths count " +
			"from the recipe's folder",
	}
}

var (
	prefix   = lazyregexp.New(`^\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*@`)
	extras   = lazyregexp.New(`\[[^\]/]*\]$`)
	marker   = lazyregexp.New(`\s;.*$`)
	archives = []string{".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar"}
)

// localPath is the path that a requirement names, as pip and uv understand it; empty for one that an index or another
// machine has.
func localPath(what string) (string, error) {
	what = marker.ReplaceAllString(what, "")
	reference := prefix.FindString(what)
	what = strings.TrimSpace(what[len(reference):])
	switch {
	case strings.HasPrefix(what, "file://"):
		u, err := url.Parse(what)
		if err != nil {
			return "", fmt.Errorf("read it as a URL: %w", err)
		}
		if u.Host != "" && u.Host != "localhost" {
			return "", fmt.Errorf("it names a file on another machine, %s", u.Host)
		}
		return filepath.FromSlash(u.Path), nil
	case strings.HasPrefix(what, "file:"):
		return strings.TrimPrefix(what, "file:"), nil
	case strings.Contains(what, "://"):
		return "", nil
	}
	what = extras.ReplaceAllString(what, "")
	isArchive := slices.ContainsFunc(archives, func(end string) bool { return strings.HasSuffix(what, end) })
	if reference != "" || strings.HasPrefix(what, ".") || strings.ContainsRune(what, '/') || isArchive {
		return what, nil
	}
	return "", nil
}

// projectFiles say what a package is made of and needs.
var projectFiles = []string{"pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in"}

// digest writes what is installed from a path: a whole file, or of a folder the project's files, and unless it is
// editable its sources and what lies beside them. Outputs of runs, such as logs and checkpoints, lie elsewhere and do
// not count.
func digest(sum hash.Hash, local string, editable bool) error {
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return digestFile(sum, local, filepath.Base(local))
	}
	project := false
	for _, name := range projectFiles {
		switch err := digestFile(sum, filepath.Join(local, name), name); {
		case err == nil:
			project = project || name == "pyproject.toml" || name == "setup.py"
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if !project {
		return fmt.Errorf("%s has no pyproject.toml and no setup.py", local)
	}
	if editable {
		return nil
	}
	return digestSources(sum, local, ".", false)
}

// digestSources goes through a folder of a package. All files of a folder that holds Python count, and all below it.
func digestSources(sum hash.Hash, root, folder string, inside bool) error {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		return err
	}
	holds := func(name string) bool {
		return slices.ContainsFunc(entries,
			func(e fs.DirEntry) bool { return !e.IsDir() && strings.HasSuffix(e.Name(), name) })
	}
	if holds("pyvenv.cfg") {
		return nil
	}
	inside = inside || folder != "." && holds(".py")
	for _, e := range entries {
		name := path.Join(filepath.ToSlash(folder), e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."), e.Name() == "__pycache__", strings.HasSuffix(e.Name(), ".egg-info"),
			name == "build", name == "dist":
		case e.IsDir():
			err = digestSources(sum, root, name, inside)
		case e.Type().IsRegular() && (inside || source(e.Name())):
			err = digestFile(sum, filepath.Join(root, name), name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// source reports whether a file's name stands for source code.
func source(name string) bool {
	switch filepath.Ext(name) {
	case ".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs":
		return true
	}
	return false
}

// wholeFile is the size up to which a file's content counts; of a larger one its size and time count, because reading
// it would delay every start.
const wholeFile = 4 << 20

func digestFile(sum hash.Hash, local, name string) error {
	f, info, err := regular.Follow(local)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, _ = fmt.Fprintf(sum, "%q %d\n", name, info.Size())
	if info.Size() > wholeFile {
		_, _ = fmt.Fprintln(sum, info.ModTime().UnixNano())
		return nil
	}
	_, err = io.Copy(sum, f)
	return err
}
