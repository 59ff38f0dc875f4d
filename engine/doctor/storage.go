package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// offline is the variable that forbids the library huggingface_hub to download; "" when none does.
func offline(lookup func(string) string) string {
	for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToLower(lookup(name)) {
		case "1", "true", "yes", "on":
			return name
		}
	}
	return ""
}

// hubCache is where the library huggingface_hub keeps models.
func hubCache(lookup func(string) string) string {
	if dir := lookup("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := lookup("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	if dir := lookup("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface", "hub")
	}
	return filepath.Join(lookup("HOME"), ".cache", "huggingface", "hub")
}

func (m Machine) variable(name string) string {
	value, _ := m.LookupEnv(name)
	return value
}

// existing is the nearest folder above path that exists, for one that will be created.
func (m Machine) existing(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := m.Size(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// modelCache looks at the folder into which models are downloaded.
func modelCache(_ context.Context, m Machine) Finding {
	dir := hubCache(m.variable)
	near := m.existing(dir)
	if err := m.Writable(near); err != nil {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s is not writable: %v", near, err),
			Remedy: "set HF_HOME to a folder that you may write to, for recipe and its blocks"}
	}
	found := dir
	if by := offline(m.variable); by != "" {
		found += "; " + by + " forbids downloads: only models that are there can be used"
	}
	free, err := m.Disk(near)
	if err == nil {
		found += fmt.Sprintf(", %.1f GiB free", float64(free)/gib)
		if free < 5*gib {
			return Finding{Verdict: Warn, Found: found,
				Remedy: "free some space, or set HF_HOME to a larger disk: a 1.5 B model takes 3 GiB, a 7 B model 15"}
		}
	}
	return Finding{Verdict: OK, Found: found}
}

// longestTemporary leaves room for names of sockets: the path of a Unix socket has at most 107 bytes on Linux, 103 on
// macOS, and vLLM names its sockets after 36 characters in this folder.
const longestTemporary = 103 - 1 - 36

func temporaryFolder(_ context.Context, m Machine) Finding {
	dir := m.variable("TMPDIR")
	if dir == "" {
		dir = "/tmp"
	}
	if err := m.Writable(dir); err != nil {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s is not writable: %v", dir, err),
			Remedy: "set TMPDIR to a folder that you may write to"}
	}
	if len(dir) > longestTemporary {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s is a path of %d bytes: sockets in it may have too long names",
			dir, len(dir)), Remedy: fmt.Sprintf("set TMPDIR to a path of at most %d bytes", longestTemporary)}
	}
	if free, err := m.Disk(dir); err == nil && free < gib {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s has %.1f GiB free", dir, float64(free)/gib),
			Remedy: "free some space, or set TMPDIR to a larger disk: compilers of kernels write there"}
	}
	return Finding{Verdict: OK, Found: dir}
}
