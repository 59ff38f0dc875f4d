package lineage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/internal/regular"
)

const (
	maxFile  = 64 << 20 // bytes of a file that is read for its digest
	maxFiles = 10_000   // of a folder that is read for its digest
)

// Here is this machine.
func Here(ctx context.Context) Machine {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	m.Host, _ = os.Hostname()
	m.GPUs, m.Driver = doctor.GPUs(ctx, doctor.Local("."))
	return m
}

// revisionOf identifies a model: the commit that the cache of Hugging Face has of a name, or a digest of a folder or
// file. Empty: it is neither here.
func revisionOf(dir, model string) string {
	path := model
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return folderDigest(path)
		}
		return fileDigest(path, info.Size())
	}
	return cached("models", model)
}

// folderDigest is a digest over the names and sizes of a folder's files and the content of those that are small:
// weights of many GB are not read, nor is what begins with a dot or what Python has compiled. Empty: it has too many
// files, or one cannot be read.
func folderDigest(folder string) string {
	h, files := sha256.New(), 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case path != folder && d.IsDir() && (strings.HasPrefix(name, ".") || name == "__pycache__"):
			return fs.SkipDir
		case d.IsDir() || strings.HasPrefix(name, "."):
			return nil
		}
		if files++; files > maxFiles {
			return errors.New("too many files")
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(folder, path)
		if rel == FileName {
			return nil
		}
		_, _ = fmt.Fprintf(h, "%q %d %s\n", filepath.ToSlash(rel), info.Size(), fileDigest(path, info.Size()))
		return nil
	})
	if err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// fileDigest is the digest of a file, or empty when it is too large to be read or cannot be.
func fileDigest(path string, size int64) string {
	if size > maxFile {
		return ""
	}
	f, _, err := regular.Follow(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// digestOf is a file or a folder by its content, or nil when it is not there.
func digestOf(dir, name string) *File {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case info.IsDir():
		return &File{Path: filepath.ToSlash(name), Digest: folderDigest(path)}
	case !info.Mode().IsRegular():
		return nil
	}
	return &File{Path: filepath.ToSlash(name), Digest: fileDigest(path, info.Size())}
}

// filesOf are the files and folders that texts in a configuration name, relative to the recipe: scripts, datasets,
// templates, the code of an environment's server.
func filesOf(dir string, config map[string]json.RawMessage) []File {
	var out []File
	eachText(config, func(text string) {
		if len(text) > 1024 || text == "." || !filepath.IsLocal(text) {
			return
		}
		if f := digestOf(dir, text); f != nil {
			out = append(out, *f)
		}
	})
	return out
}

// eachText calls visit with each text in a configuration, besides the model, in order and once.
func eachText(config map[string]json.RawMessage, visit func(string)) {
	texts := map[string]bool{}
	var collect func(any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				collect(inner)
			}
		case []any:
			for _, inner := range v {
				collect(inner)
			}
		case string:
			if v != "" {
				texts[v] = true
			}
		}
	}
	for name, raw := range config {
		var v any
		if name != "model" && json.Unmarshal(raw, &v) == nil {
			collect(v)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		visit(text)
	}
}
