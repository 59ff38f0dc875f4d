package packages

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// Compile builds the Go program of a folder for each platform into a folder, and returns the paths, by platform. The
// same source and the same Go release give the same bytes: paths, the state of a repository and build ids are left
// out.
func Compile(ctx context.Context, source, into string, platforms []string) (map[string]string, error) {
	programs := map[string]string{}
	for _, platform := range platforms {
		p, err := parsePlatform(platform)
		if err != nil {
			return nil, err
		}
		program := filepath.Join(into, p.OS+"-"+p.Architecture)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o",
			program, ".")
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, &sdk.Error{Summary: fmt.Sprintf("could not build %s for %s", source, platform),
				Detail: strings.TrimSpace(string(out)), Err: err,
				Remedy: "make `go build .` work there; GOOS and GOARCH are set to the platform, CGO_ENABLED to 0"}
		}
		programs[platform] = program
	}
	return programs, nil
}

// skipped are the folders of a Python project that are no part of it.
var skipped = []string{"__pycache__", "venv", "node_modules", "build", "dist"}

// Folder reads the files of a Python project: regular files that are not hidden, without environments and what tools
// make.
func Folder(dir string) (map[string]File, error) {
	files := map[string]File{}
	total := int64(0)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		switch {
		case strings.HasPrefix(d.Name(), "."), d.IsDir() && (slices.Contains(skipped, d.Name()) || isVenv(path)):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no regular file; a package has no links", path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if total += info.Size(); total > maxArchive || len(files) >= maxFiles {
			return fmt.Errorf("%s has more than %d bytes or %d files; keep data sets and models elsewhere", dir, maxArchive,
				maxFiles)
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = File{Content: content, Executable: info.Mode()&0o100 != 0}
		return err
	})
	return files, err
}

func isVenv(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "pyvenv.cfg"))
	return err == nil
}

// Files reads files below a folder, by their names relative to it.
func Files(dir string, names []string) (map[string]File, error) {
	files := map[string]File{}
	for _, name := range names {
		content, err := regular.FollowFile(filepath.Join(dir, name), maxArchive)
		if err != nil {
			return nil, err
		}
		files[filepath.ToSlash(name)] = File{Content: content}
	}
	return files, nil
}
