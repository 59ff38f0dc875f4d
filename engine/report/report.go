// Package report writes an HTML report of a run: one file, which needs no server, no script and nothing from outside.
package report

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/ui"
)

//go:embed report.html
var files embed.FS

// What a report shows at most.
const (
	maxSamples = 24
	maxLines   = 200
	maxText    = 2000 // bytes of a text that a model or a program wrote
)

// report is what the template shows. All texts are escaped there.
type report struct {
	Name, Recipe, File, ID string
	Status, Message        string
	Started, Ended, Made   time.Time
	Version                int64
	Blocks                 []*snapshot.Block
	Charts                 []chart
	Evaluations            []evaluated
	Samples                []sample
	Lines                  []event.Event
	Config                 []configured
	Outputs                []configured
}

// configured is a name with a text in JSON.
type configured struct{ Name, JSON string }

// sample is a group of the record.
type sample struct {
	Environment string
	Step        int64
	Mean        *float64
	Scores      []float64
	Prompt      string
	Best        string
}

// Write writes the report of the run in dir.
func Write(ctx context.Context, w io.Writer, dir state.Dir) error {
	r, err := collect(ctx, dir)
	if err != nil {
		return err
	}
	page, err := template.New("report.html").Funcs(template.FuncMap{"at": at, "short": short,
		"number": number}).ParseFS(files, "report.html")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var text strings.Builder
	if err := page.Execute(&text, r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if _, err := io.WriteString(w, printable.Text(text.String())); err != nil { // names of a stranger's run, too
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func collect(ctx context.Context, dir state.Dir) (*report, error) {
	rec, err := state.Read(dir)
	if err != nil {
		return nil, err
	}
	r := &report{Name: filepath.Base(string(dir)), Recipe: rec.Recipe, File: filepath.Base(rec.File), ID: rec.ID,
		Made: time.Now().UTC()}
	snap, err := snapshot.Read(dir.Events())
	if err != nil {
		return nil, err
	}
	if r.Lines, err = newestLines(ctx, dir); err != nil {
		return nil, err
	}
	r.Status, r.Message, r.Started, r.Ended, r.Version = snap.Status, snap.Message, snap.Started, snap.Ended, snap.Version
	if r.Status == "" {
		r.Status = string(rec.Status)
	}
	for _, address := range snap.Addresses() {
		b := snap.Blocks[address]
		r.Blocks = append(r.Blocks, b)
		r.Charts = append(r.Charts, chartsOf(b)...)
	}
	for a, b := range rec.Blocks {
		text, err := json.MarshalIndent(b.Config, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("read the configuration of %s: %w", a, err)
		}
		r.Config = append(r.Config, configured{a.String(), string(text)})
	}
	for name, o := range rec.Outputs {
		text := string(o.Value)
		if o.Sensitive {
			text = "(sensitive)"
		}
		r.Outputs = append(r.Outputs, configured{name, text})
	}
	for _, list := range [][]configured{r.Config, r.Outputs} {
		slices.SortFunc(list, func(a, b configured) int { return strings.Compare(a.Name, b.Name) })
	}
	if r.Samples, err = samplesOf(ctx, dir); err != nil {
		return nil, err
	}
	r.Evaluations, err = evaluationsOf(dir, rec)
	return r, err
}

// said are parts of the JSON of every event that is a line of the report. Other events need not be decoded.
var said = [][]byte{[]byte(`"` + event.Notice + `"`), []byte(`"` + event.Restart + `"`), []byte(`"` + event.Stalled + `"`),
	[]byte(`"warn"`), []byte(`"error"`)}

// newestLines are the newest events that are lines of the report, the oldest of them first.
func newestLines(ctx context.Context, dir state.Dir) (out []event.Event, err error) {
	enough := errors.New("enough")
	pick := event.Pick{
		Text: func(line []byte) bool {
			return slices.ContainsFunc(said, func(part []byte) bool { return bytes.Contains(line, part) })
		},
		Event: func(e event.Event) bool {
			return e.Type == event.Notice || e.Type == event.Restart || e.Type == event.Stalled || e.Level == "warn" ||
				e.Level == "error"
		},
	}
	err = event.Back(dir.Events(), pick, func(e event.Event) error {
		if out = append(out, e); len(out) == maxLines {
			return enough
		}
		return ctx.Err()
	})
	if errors.Is(err, enough) {
		err = nil
	}
	slices.Reverse(out)
	return out, err
}

// samplesOf reads the newest groups as the dashboard shows them.
func samplesOf(ctx context.Context, dir state.Dir) ([]sample, error) {
	runs := map[string]state.Dir{"run": dir}
	server, err := ui.New(ui.Options{Runs: func() (map[string]state.Dir, error) { return runs, nil }})
	if err != nil {
		return nil, err
	}
	defer server.Close()
	text, err := server.Get(ctx, "runs/run/samples", url.Values{"limit": {strconv.Itoa(maxSamples)}})
	if err != nil {
		return nil, err
	}
	var list struct{ Groups []sample }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the samples of the run: %w", err)
	}
	return list.Groups, nil
}

func at(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func short(s string) string { return printable.Limit(printable.Text(s), maxText) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
