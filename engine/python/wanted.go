package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/sdk"
)

// unsatisfied is what uv prints of a package that needs another Python.
var unsatisfied = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`does not satisfy Python([<>=!~]=?[0-9.*]+(?:,\s*[<>=!~]=?[0-9.*]+)*)`)
})

// printed is the failure of a program, and all that it has printed.
type printed struct {
	error
	output string
}

func (p *printed) Unwrap() error { return p.error }

// wantedPython is the version of Python that a failed installation needs, such as >=3.12; empty: it failed for another
// reason.
func wantedPython(err error) string {
	var failed *printed
	if !errors.As(err, &failed) {
		return ""
	}
	m := unsatisfied().FindStringSubmatch(strings.Join(strings.Fields(failed.output), " "))
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], " ", "")
}

// unsupported is a failed installation of packages that need other versions than the block's plugin supports, which uv
// names where it says why nothing fits; other errors stay as they are.
func unsupported(err error, supported []string) error {
	var failed *printed
	var e *sdk.Error
	if !errors.As(err, &failed) || !errors.As(err, &e) || !strings.Contains(failed.output, "unsatisfiable") {
		return err
	}
	for _, s := range supported {
		if !strings.Contains(strings.Join(strings.Fields(failed.output), " "), s) {
			continue
		}
		return &sdk.Error{Summary: fmt.Sprintf("%s: the block's plugin supports %s", e.Summary, s), Detail: e.Detail,
			Err: e.Err, Remedy: "name releases of the packages for these versions in runtime { requirements = […] }"}
	}
	return err
}

// withoutWheels is a failed installation of packages that would have to be built, where nothing is built.
func (m Maker) withoutWheels(err error) error {
	var failed *printed
	var e *sdk.Error
	if !m.NoBuild || !errors.As(err, &failed) || !errors.As(err, &e) ||
		!noWheels().MatchString(strings.Join(strings.Fields(failed.output), " ")) {
		return err
	}
	return &sdk.Error{Summary: e.Summary + ": one of the packages has no wheel, and would have to be built",
		Detail: e.Detail, Err: e.Err,
		Remedy: "a build runs code of the package: recipe init --trust all allows it, if you trust the packages and what " +
			"they depend on"}
}

// noWheels is what uv prints of a package that it may not build.
var noWheels = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)no usable wheels|building (from )?source( distributions)? is disabled|no-build`)
})

// newer finds an interpreter of a version on this machine; empty: there is none. Nothing is downloaded for it.
func (m Maker) newer(ctx context.Context, uv, version string) string {
	cmd := exec.CommandContext(ctx, uv, "python", "find", "--no-config", "--no-python-downloads", "--system", version)
	cmd.Dir = m.Dir
	cmd.Env = append(append(os.Environ(), m.Environ...), "VIRTUAL_ENV=")
	out, err := cmd.Output()
	path := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(path) {
		return ""
	}
	return path
}

// needsPython is a failed installation for which another Python is needed.
func needsPython(err error, version string) error {
	var failed *sdk.Error
	if !errors.As(err, &failed) {
		return err
	}
	plain := strings.TrimLeft(version, "<>=!~")
	plain, _, _ = strings.Cut(plain, ",")
	return &sdk.Error{Summary: fmt.Sprintf("%s: the packages need Python %s", failed.Summary, version),
		Detail: failed.Detail, Err: failed.Err,
		Remedy: fmt.Sprintf("name it in the block, runtime { python = %q }, which may also be the path of an interpreter; "+
			"then run recipe init again", plain)}
}
