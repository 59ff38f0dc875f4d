package lineage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/doctor"
)

const (
	maxFile   = 64 << 20 // bytes of a file that is read for its digest
	hubFolder = "hub"    // in the cache of Hugging Face
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
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		home = filepath.Join(cache, ".cache", "huggingface")
	}
	hub := filepath.Join(home, hubFolder)
	if set := os.Getenv("HF_HUB_CACHE"); set != "" {
		hub = set
	}
	ref := filepath.Join(hub, "models--"+strings.ReplaceAll(model, "/", "--"), "refs", "main")
	commit, err := os.ReadFile(ref)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(commit))
}

// folderDigest is a digest over the names and sizes of a folder's files and the content of those that are small:
// weights of many GB are not read.
func folderDigest(folder string) string {
	h := sha256.New()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
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
	f, err := os.Open(path)
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

// digestOf is a file of a folder by its content, or nil when it is not there.
func digestOf(dir, name string) *File {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return &File{Path: filepath.ToSlash(name), Digest: fileDigest(filepath.Join(dir, name), info.Size())}
}

// filesOf are the files that texts in a configuration name, relative to the recipe: scripts, datasets, templates.
func filesOf(dir string, config map[string]json.RawMessage) []File {
	var out []File
	seen := map[string]bool{}
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				visit(inner)
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		case string:
			if seen[v] || v == "" || len(v) > 1024 || !filepath.IsLocal(v) {
				return
			}
			seen[v] = true
			if f := digestOf(dir, v); f != nil {
				out = append(out, *f)
			}
		}
	}
	for name, raw := range config {
		var v any
		if name != "model" && json.Unmarshal(raw, &v) == nil {
			visit(v)
		}
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}
