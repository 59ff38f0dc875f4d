// Package logcache caches the summary of an event log in a file beside it. What shows a run then reads only the newest
// file of the log: to read a log of a million events takes seconds.
package logcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/regular"
)

// Fold is what events come to, one after another.
type Fold interface {
	Apply(event.Event)
	Seen() uint64 // number of the newest event
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler // called for a Fold without events
}

// File is where a kind of Fold is kept.
type File struct {
	Name  string // in the folder of the log
	Limit int64  // bytes; more are not kept
}

// Read folds the log in dir. What its complete files come to is kept, so that only the newest file is read each time:
// save writes it, if there is something new. The file is no record. Without it, or when it does not fit the log or this
// program, the whole log is read; when it cannot be written, that changes nothing. With an error, the Fold has the
// events before it.
func Read[F Fold](ctx context.Context, dir string, file File, empty func() F) (fold F, save func() error, err error) {
	return read(ctx, dir, file, empty, true)
}

// Complete is Read of the complete files alone, for who shows the events of the newest one by one.
func Complete[F Fold](ctx context.Context, dir string, file File, empty func() F) (fold F, save func() error,
	err error) {
	return read(ctx, dir, file, empty, false)
}

// errNewest ends the reading of the complete files.
var errNewest = errors.New("an event of the newest file")

func read[F Fold](ctx context.Context, dir string, file File, empty func() F, newest bool) (fold F, save func() error,
	err error) {
	save = func() error { return nil }
	done, next, err := complete(dir)
	program := thisProgram()
	fold = empty()
	if err != nil || len(done) == 0 && !newest {
		return fold, save, err
	}
	keeps := len(done) > 0 && program != ""
	var to logFile // the last file in the fold that is kept
	if keeps {
		fold, to = recall(dir, file, program, done, empty)
	}
	keep := func() {
		if keeps && to != done[len(done)-1] {
			to = done[len(done)-1]
			content, err := encode(header{program, done}, fold)
			save = func() error { return errors.Join(err, write(dir, file, content)) }
		}
	}
	if !newest && fold.Seen()+1 >= next {
		return fold, save, nil
	}
	err = event.Read(dir, fold.Seen(), func(e event.Event) error {
		if e.Seq >= next {
			if keep(); !newest {
				return errNewest
			}
		}
		fold.Apply(e)
		return ctx.Err()
	})
	switch {
	case errors.Is(err, errNewest):
		err = nil
	case err == nil:
		keep() // the newest file had no event yet
	}
	return fold, save, err
}

// logFile is one file of the log as it was folded.
type logFile struct {
	Name     string
	Bytes    int64
	Modified int64 // nanoseconds since 1970
	// Changed is when the system has last changed what it knows of the file: likewise. No program can set it, so files of
	// a run directory that came from somewhere else have another one, and what somebody has written beside them is not
	// read: a fold takes what it finds there for its own.
	Changed int64
}

// complete lists the files of a log to which nothing is added any more, and the number of the first event after them.
func complete(dir string) (done []logFile, next uint64, err error) {
	segments, err := event.Segments(dir)
	if err != nil || len(segments) < 2 {
		return nil, 0, err
	}
	for _, path := range segments[:len(segments)-1] {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading the event log: %w", err)
		}
		done = append(done, logFile{filepath.Base(path), info.Size(), info.ModTime().UnixNano(), regular.Changed(info)})
	}
	if next, err := event.FirstOf(segments[len(segments)-1]); err == nil {
		return done, next, nil
	}
	return nil, 0, nil // it is no file of the engine's: nothing is known of what is complete
}

// header says of what the fold after it was made.
type header struct {
	Program string // another program may fold in another way
	Files   []logFile
}

// recall returns what is kept of a log, and the last file in it; a Fold without events when that does not fit.
func recall[F Fold](dir string, file File, program string, done []logFile, empty func() F) (F, logFile) {
	content, err := private.ReadFile(filepath.Join(dir, file.Name), file.Limit)
	if err != nil {
		return empty(), logFile{}
	}
	sum, rest, _ := bytes.Cut(content, []byte("\n"))
	text, folded, _ := bytes.Cut(rest, []byte("\n"))
	var h header
	if string(sum) != digest(rest) || json.Unmarshal(text, &h) != nil || h.Program != program {
		return empty(), logFile{}
	}
	// The oldest files of a long log are deleted, and so may be those of this one since.
	h.Files = slices.DeleteFunc(h.Files, func(f logFile) bool { return f.Name < done[0].Name })
	if n := len(h.Files); n == 0 || n > len(done) || !slices.Equal(h.Files, done[:n]) {
		return empty(), logFile{}
	}
	fold := empty()
	if err := fold.UnmarshalBinary(folded); err != nil {
		return empty(), logFile{}
	}
	return fold, h.Files[len(h.Files)-1]
}

func encode(h header, fold Fold) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	folded, err := fold.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(digest(text, []byte("\n"), folded)), []byte("\n"), text, []byte("\n"), folded), nil
}

// write replaces the file. It writes nothing into a folder that its owner has made read-only, not even as root.
func write(dir string, file File, content []byte) error {
	if int64(len(content)) > file.Limit {
		return fmt.Errorf("cache the summary of the event log in %s: it has %d bytes, expected at most %d", dir, len(content),
			file.Limit)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o200 == 0 {
		return fmt.Errorf("cache the summary of the event log in %s: the folder is read-only", dir)
	}
	return private.WriteFile(filepath.Join(dir, file.Name), content)
}

func digest(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// thisProgram tells programs apart that were built from different sources; empty: it cannot.
func thisProgram() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	build, _ := debug.ReadBuildInfo()
	return program(info, build)
}

// program is the size and the time of a program, and what it says of its build: an image or a package may give all of
// its files one time.
func program(info os.FileInfo, build *debug.BuildInfo) string {
	text := ""
	if build != nil {
		text = digest([]byte(build.String()))
	}
	return fmt.Sprintf("%d bytes, %s, %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano), text)
}
