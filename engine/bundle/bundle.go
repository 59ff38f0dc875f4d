// Package bundle writes what is needed to help with a run into one archive, without secrets and without what was
// sampled.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
)

// How much of a file is taken: its end.
const (
	eventBytes = 8 << 20 // of each of the newest files
	eventFiles = 2
	logBytes   = 512 << 10
)

// Contents is what goes into an archive.
type Contents struct {
	Texts map[string][]byte // by name in the archive
	Files map[string]string // paths of files to add, by name in the archive
	Run   state.Dir         // its record, events and logs; empty: none
}

const readme = `A support bundle of recipe, made by recipe doctor --bundle.

Secrets are replaced by (secret): values of sensitive variables and of env(), values of environment variables that look
like credentials, the run's own tokens, and everything that has the form of a token, a key or a password in a URL.
Sampled texts, weights, trajectories and the run's key are not in it. Look through it before you send it.
`

// Write writes the archive.
func Write(w io.Writer, c Contents, r *Redactor) error {
	zip := gzip.NewWriter(w)
	a := &archive{tar: tar.NewWriter(zip), redactor: r, now: time.Now()}
	a.add("README.txt", []byte(readme))
	for _, name := range sorted(c.Texts) {
		a.add(name, c.Texts[name])
	}
	for _, name := range sorted(c.Files) {
		a.file(name, func() (*os.File, fs.FileInfo, error) { return regular.Open(c.Files[name]) }, logBytes)
	}
	if c.Run != "" {
		a.run(c.Run)
	}
	for _, f := range []func() error{a.tar.Close, zip.Close} {
		if err := f(); a.err == nil {
			a.err = err
		}
	}
	if a.err != nil {
		return fmt.Errorf("write the bundle: %w", a.err)
	}
	return nil
}

func sorted[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// archive adds files until one cannot be written.
type archive struct {
	tar      *tar.Writer
	redactor *Redactor
	now      time.Time
	err      error
}

// add adds a text without its secrets.
func (a *archive) add(name string, text []byte) {
	if a.err != nil {
		return
	}
	text = []byte(a.redactor.Text(string(text)))
	name = "recipe-bundle/" + a.redactor.Text(name)
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = a.tar.Write(text)
	}
}

// file adds the end of a file, from the beginning of a line. One that is not there, or not a regular file, is left
// out.
func (a *archive) file(name string, open func() (*os.File, fs.FileInfo, error), most int64) {
	text, err := tail(open, most)
	if errors.Is(err, fs.ErrNotExist) || text == nil && err == nil {
		return
	}
	if err != nil {
		text = []byte("(not readable: " + err.Error() + ")")
	}
	a.add(name, text)
}

func tail(open func() (*os.File, fs.FileInfo, error), most int64) ([]byte, error) {
	f, info, err := open()
	if errors.Is(err, regular.ErrRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	from := max(0, info.Size()-most)
	text, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if from > 0 { // a part of a line could hide the part of a secret
		_, text, _ = bytes.Cut(text, []byte{'\n'})
	}
	return text, err
}

// in opens a file of a run, which a link in the run's directory cannot lead out of.
func in(dir state.Dir, path string) func() (*os.File, fs.FileInfo, error) {
	return func() (*os.File, fs.FileInfo, error) {
		name, err := filepath.Rel(string(dir), path)
		if err != nil {
			return nil, nil, err
		}
		return regular.OpenIn(string(dir), name)
	}
}

// run adds the record, the newest events and the logs of a run.
func (a *archive) run(dir state.Dir) {
	for _, name := range []string{"run.json", "run.journal", "lineage.json", "place.json", "engine.log"} {
		a.file("run/"+name, in(dir, filepath.Join(string(dir), name)), eventBytes)
	}
	segments, err := event.Segments(dir.Events())
	if err != nil {
		a.add("run/events.txt", []byte(err.Error()))
	}
	for _, path := range segments[max(0, len(segments)-eventFiles):] {
		text, err := tail(in(dir, path), eventBytes)
		if err != nil {
			text = []byte(err.Error())
		}
		a.add("run/events/"+filepath.Base(path), withoutSamples(text))
	}
	printed, err := filepath.Glob(filepath.Join(string(dir), "blocks", "*", "std*"))
	if err != nil {
		a.add("run/blocks.txt", []byte(err.Error()))
	}
	for _, path := range printed {
		block := filepath.Base(filepath.Dir(path))
		a.file("run/blocks/"+block+"/"+filepath.Base(path), in(dir, path), logBytes)
	}
}

// withoutSamples takes prompts and completions out of events. Lines that are no events are left out.
func withoutSamples(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		var e event.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.Type == event.Span && len(e.Attributes) > 0 { // which may have prompts
			e.Attributes = nil
			line, _ = json.Marshal(e)
			line = append(line, '\n')
		}
		if e.Type == event.Sample {
			e.Prompt, e.Completion = fmt.Sprintf("(%d bytes)", len(e.Prompt)), fmt.Sprintf("(%d bytes)", len(e.Completion))
			line, _ = json.Marshal(e)
			line = append(line, '\n')
		}
		out.Write(line)
	}
	return out.Bytes()
}

// Names lists the names of environment variables, without their values.
func Names(environ []string) []byte {
	names := make([]string, 0, len(environ))
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return []byte(strings.Join(names, "\n") + "\n")
}
