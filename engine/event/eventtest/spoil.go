package eventtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Spoil makes a file unreadable such that it looks as before, so that who reads it fails. Only the system sets when the
// file has changed, so what is kept of it is made to name that.
func Spoil(tb TB, path string) {
	tb.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Repeat([]byte("x\n"), int(info.Size())/2+1), 0o600)
	}
	if err == nil {
		err = os.Truncate(path, info.Size())
	}
	if err == nil {
		err = os.Chtimes(path, time.Time{}, info.ModTime())
	}
	if err == nil {
		info, err = os.Stat(path)
	}
	if err == nil {
		err = keptAgain(path, regular.Changed(info))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// keptAgain gives a file of a log another time of its change in what is kept beside it: see package logcache.
func keptAgain(path string, changed int64) error {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.kept"))
	if err != nil {
		return err
	}
	entry := regexp.MustCompile(`("Name":"` + regexp.QuoteMeta(filepath.Base(path)) + `"[^}]*"Changed":)[0-9]+`)
	for _, kept := range all {
		content, err := os.ReadFile(kept)
		if err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(content, []byte("\n"))
		header, folded, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			return errors.New(kept + " has no header")
		}
		header = entry.ReplaceAll(header, fmt.Appendf(nil, "${1}%d", changed))
		rest = append(append(header, '\n'), folded...)
		if err := os.WriteFile(kept, append(fmt.Appendf(nil, "%x\n", sha256.Sum256(rest)), rest...), 0o600); err != nil {
			return err
		}
	}
	return nil
}
