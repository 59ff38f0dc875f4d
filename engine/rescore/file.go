package rescore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// FormatVersion is the `v` of a file's header.
const FormatVersion = 1

// Header is the first line of a file of results: what they are scores of.
type Header struct {
	V           int    `json:"v"`
	Environment string `json:"environment"`
	Function    string `json:"function,omitempty"` // empty: the environment as the recipe has it
	Digest      string `json:"digest"`             // of the environment's attributes and files
}

// Result is a line of the file: the scores of one group.
type Result struct {
	Key
	Completions []sdk.RescoredCompletion `json:"completions,omitempty"`
	Unable      string                   `json:"unable,omitempty"`
}

const (
	mostLine   = 256 << 20 // bytes of a line
	mostValues = 4 << 20   // of JSON in it, which are counted before they are decoded
	mostDepth  = 100
)

// Folder is the folder of a run directory in which results are kept.
const Folder = "rescored"

// scores is the name of the file in a folder of results.
const scores = "scores.jsonl"

// File keeps results as JSON lines, each written as soon as it is known: after a kill only the missing ones are scored.
type File struct {
	Done   map[Key]Result
	Path   string
	f      *os.File
	unlock func()
}

// OpenFile opens the results of an environment in a run directory, or begins them, and waits for another command that
// writes them. They are kept by digest: another function, or another content of it, has a file of its own.
func OpenFile(ctx context.Context, runDir string, environment addr.Block, h Header) (*File, error) {
	h.V, h.Environment = FormatVersion, environment.String()
	folder := filepath.Join(runDir, Folder)
	if err := private.Dir(folder); err != nil {
		return nil, err
	}
	name := environment.FileName() + "." + h.Digest
	err := dropOldest(folder, name)
	if err != nil {
		return nil, err
	}
	folder = filepath.Join(folder, name)
	if err := private.Dir(folder); err != nil {
		return nil, err
	}
	out := &File{Done: map[Key]Result{}, Path: filepath.Join(folder, scores)}
	if out.unlock, err = private.LockFolder(ctx, folder, "another recipe trajectories rescore"); err != nil {
		return nil, err
	}
	if err := out.open(h); err != nil {
		return nil, errors.Join(fmt.Errorf("open the file of results %s: %w", out.Path, err), out.Close())
	}
	return out, nil
}

// kept is how many folders of results are kept, one for each function and content: the ones used last.
const kept = 20

// dropOldest makes room for results of this name.
func dropOldest(folder, name string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list the results: %w", err)
	}
	var others []fs.FileInfo
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(folder, e.Name(), scores))
		if err == nil && e.IsDir() && e.Name() != name {
			others = append(others, named{info, e.Name()})
		}
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, old := range others[min(len(others), kept-1):] {
		if err := os.RemoveAll(filepath.Join(folder, old.Name())); err != nil {
			return fmt.Errorf("remove the oldest results: %w", err)
		}
	}
	return nil
}

// named is what is known of a file, under the name of its folder.
type named struct {
	fs.FileInfo
	folder string
}

func (n named) Name() string { return n.folder }

func (f *File) open(h Header) (err error) {
	if f.f, err = private.OpenFile(f.Path, os.O_RDWR|os.O_CREATE); err != nil {
		return err
	}
	if !private.OneName(f.Path) { // what is written would be in a file elsewhere, too
		return &sdk.Error{Summary: "the file has another name, too", Remedy: "remove it"}
	}
	whole, err := f.read(h)
	if err == nil {
		err = f.f.Truncate(int64(whole))
	}
	if err == nil {
		_, err = f.f.Seek(0, io.SeekEnd)
	}
	if err == nil && whole == 0 {
		err = f.line(h)
	}
	return err
}

// read reads complete lines and returns their length. A line that was cut off is dropped.
func (f *File) read(h Header) (whole int, err error) {
	lines := bufio.NewReader(f.f)
	for n := 1; ; n++ {
		line, err := bounded.Line(lines, mostLine)
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		if n == 1 {
			var found Header
			if json.Unmarshal(line, &found) != nil || found.V != h.V || found.Digest != h.Digest {
				return 0, &sdk.Error{Summary: "it is no file of results of this format", Remedy: "remove it"}
			}
		} else {
			var r Result
			if !bounded.FitsJSON(line, mostValues, mostDepth) || json.Unmarshal(line, &r) != nil {
				return 0, &sdk.Error{Summary: fmt.Sprintf("line %d is no result", n), Remedy: "remove the file"}
			}
			f.Done[r.Key] = r
		}
		whole += len(line)
	}
}

// Forget drops the groups in which a completion has no score, so that they are scored again.
func (f *File) Forget() {
	for key, r := range f.Done {
		for _, c := range r.Completions {
			if c.Score == nil {
				delete(f.Done, key)
				break
			}
		}
	}
}

// Add keeps a result.
func (f *File) Add(r Result) error {
	f.Done[r.Key] = r
	return f.line(r)
}

func (f *File) line(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = f.f.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the file of results: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	var err error
	if f.f != nil {
		err = f.f.Close()
	}
	f.unlock()
	return err
}
