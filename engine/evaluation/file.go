package evaluation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// FormatVersion is the `v` of a file's header. Version 0 had no `v` and no completions.
const FormatVersion = 1

// Header is the first line of a file of scores: what they are scores of. Only scores of one header belong together.
type Header struct {
	V           int     `json:"v"`
	Environment string  `json:"environment"`
	Settings    string  `json:"settings"` // digest of the environment's attributes
	Policy      string  `json:"policy"`
	Version     int64   `json:"policy_version"` // that answered; -1: not known
	Samples     int     `json:"samples"`
	Temperature float64 `json:"temperature"`
	Seed        *int64  `json:"seed,omitempty"` // nil: that of the environment
}

// differs names the first field in which two headers differ; empty: none.
func (h Header) differs(o Header) string {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"environment", h.Environment, o.Environment}, {"settings of the environment", h.Settings, o.Settings},
		{"policy", h.Policy, o.Policy}, {"policy version", h.Version, o.Version}, {"samples", h.Samples, o.Samples},
		{"temperature", h.Temperature, o.Temperature}, {"seed", h.seed(), o.seed()},
	} {
		if f.a != f.b {
			return fmt.Sprintf("%s is %v there and %v here", f.name, f.a, f.b)
		}
	}
	return ""
}

// seed is the seed in words.
func (h Header) seed() string {
	if h.Seed == nil {
		return "that of the environment"
	}
	return strconv.FormatInt(*h.Seed, 10)
}

// begins reports whether a text is the beginning of the header's line.
func (h Header) begins(text []byte) bool {
	line, err := encoded(h)
	return err == nil && bytes.HasPrefix(line, text)
}

// mostLine is how many bytes a line of scores may have, the completions of a task.
const mostLine = 256 << 20

// mostHeader is how many bytes the first line may have.
const mostHeader = 1 << 20

// File keeps scores as JSON lines: the header, then a task a line, each written as soon as it is known.
type File struct {
	Done   map[int]sdk.TaskScore // by task
	Header Header
	f      *os.File // nil: nothing is kept
	begun  bool     // the header is written
	room   *room    // of what is read; nil: all is read
}

// OpenFile opens the scores at path, or begins them. With an empty path nothing is kept. A line that was cut off is
// dropped, and its task is missing.
func OpenFile(ctx context.Context, path string, h Header) (*File, error) {
	h.V = FormatVersion
	out := &File{Done: map[int]sdk.TaskScore{}, Header: h}
	if path == "" {
		return out, nil
	}
	f, err := outfile.Continue(ctx, path, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the file of scores: %w", err)
	}
	whole, err := out.read(f, path, h)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	out.f = f
	if err := out.f.Truncate(int64(whole)); err != nil {
		return nil, errors.Join(fmt.Errorf("open the file of scores: %w", err), out.f.Close())
	}
	if _, err := out.f.Seek(0, 2); err != nil {
		return nil, errors.Join(fmt.Errorf("open the file of scores: %w", err), out.f.Close())
	}
	out.begun = whole > 0
	return out, nil
}

// Pin sets the policy version of a file that has no scores yet.
func (f *File) Pin(version int64) { f.Header.Version = version }

// Forget drops the tasks of which a completion has no score, so that they are missing, and returns how many these were.
func (f *File) Forget() int {
	before := len(f.Done)
	maps.DeleteFunc(f.Done, func(_ int, t sdk.TaskScore) bool { return len(t.Failed) > 0 })
	return before - len(f.Done)
}

// read reads complete lines and returns their length.
func (f *File) read(from io.Reader, path string, h Header) (whole int, err error) {
	lines := bufio.NewReader(from)
	for n := 1; ; n++ {
		most := int64(mostLine)
		if n == 1 { // the file may be anything
			most = mostHeader
		}
		line, err := bounded.Line(lines, most)
		switch {
		case errors.Is(err, io.EOF) && (n > 1 || h.begins(line)):
			return whole, nil // a line that was cut off is dropped
		case errors.Is(err, io.EOF): // a file of something else would be emptied
		case errors.Is(err, bounded.ErrTooLarge):
			line = nil
		case err != nil:
			return 0, fmt.Errorf("read earlier scores: %w", err)
		}
		if err := f.room.take(line); err != nil {
			return 0, err
		}
		var found Header
		var t sdk.TaskScore
		switch {
		case n == 1 && json.Unmarshal(line, &found) == nil && found.V > FormatVersion:
			return 0, &sdk.Error{Summary: fmt.Sprintf("%s has format version %d; this recipe writes %d", path, found.V,
				FormatVersion), Remedy: "name another file, or use the recipe that wrote it"}
		case n == 1 && json.Unmarshal(line, &found) == nil && found.Environment != "":
			if difference := found.differs(h); difference != "" {
				return 0, &sdk.Error{Summary: fmt.Sprintf("%s holds scores of another evaluation: %s", path, difference),
					Remedy: "name another file, or remove this one"}
			}
		case n > 1 && json.Unmarshal(line, &t) == nil && len(t.Scores)+len(t.Failed) >= h.Samples &&
			t.Task >= 0:
			f.room.slim(&t)
			f.Done[t.Task] = t // of two lines of a task the last counts
		default:
			return 0, &sdk.Error{Summary: fmt.Sprintf("%s:%d is not a line of scores", path, n),
				Remedy: "name another file, or remove this one"}
		}
		whole += len(line)
	}
}

// Add keeps the scores of a task.
func (f *File) Add(t sdk.TaskScore) error {
	f.Done[t.Task] = t
	if f.f == nil {
		return nil
	}
	if !f.begun {
		if err := f.line(f.Header); err != nil {
			return err
		}
		f.begun = true
	}
	return f.line(t)
}

func (f *File) line(v any) error {
	text, err := encoded(v)
	if err == nil {
		_, err = f.f.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write the file of scores: %w", err)
	}
	return nil
}

// encoded is a line.
func encoded(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text) // which ends the line
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}

// Results are the scores of the tasks below limit (0: of all), by task.
func (f *File) Results(limit int) []sdk.TaskScore {
	var out []sdk.TaskScore
	for _, t := range f.Done {
		if limit == 0 || t.Task < limit {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b sdk.TaskScore) int { return a.Task - b.Task })
	return out
}

// Missing are the first tasks in a row below limit whose scores are not known: from first, count of them, at most
// most.
// Count is 0 when none is missing.
func (f *File) Missing(limit, most int) (first, count int) {
	for first < limit {
		if _, ok := f.Done[first]; !ok {
			break
		}
		first++
	}
	for first+count < limit && count < most {
		if _, ok := f.Done[first+count]; ok {
			break
		}
		count++
	}
	return first, count
}

// Close closes the file.
func (f *File) Close() error {
	if f.f == nil {
		return nil
	}
	return f.f.Close()
}

// ReadScores are the tasks of a file of scores, by task, and its header.
func ReadScores(path string) ([]sdk.TaskScore, Header, error) {
	from, _, err := regular.Open(path)
	return readScores(from, err, path, nil)
}

// readScores reads an open file, and closes it. Err is why it could not be opened. It reads as much as there is room
// for; nil: all.
func readScores(from *os.File, err error, path string, most *room) ([]sdk.TaskScore, Header, error) {
	if err != nil {
		return nil, Header{}, fmt.Errorf("read scores: %w", err)
	}
	defer func() { _ = from.Close() }()
	line, err := bounded.Line(bufio.NewReader(from), mostHeader)
	var h Header
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil {
		_, err = from.Seek(0, io.SeekStart)
	}
	out := &File{Done: map[int]sdk.TaskScore{}, Header: h, room: most}
	if err == nil {
		_, err = out.read(from, path, h)
	}
	if err != nil {
		return nil, h, fmt.Errorf("read the scores in %s: %w", path, err)
	}
	return out.Results(0), h, nil
}
