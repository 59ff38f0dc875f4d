package why

import (
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// FormatVersion is the version of Document. A minor version adds fields.
const FormatVersion = "1.0"

// Document is a Report for machines: what `recipe status --why --json` prints, described in docs/troubleshooting.md.
type Document struct {
	FormatVersion string          `json:"format_version"`
	Time          time.Time       `json:"time"`
	Engine        bool            `json:"engine"`        // an engine answered; without one only Last is set
	After         float64         `json:"after_seconds"` // time without progress after which an edge counts as stalled
	Stalls        []StallDocument `json:"stalls"`
	Blocks        []BlockDocument `json:"blocks,omitempty"`
	Last          []string        `json:"last,omitempty"` // what the run waited for in the engine's last report
	LastTime      *time.Time      `json:"last_time,omitempty"`
	Stacks        []Stack         `json:"stacks,omitempty"`
}

// StallDocument is a Stall.
type StallDocument struct {
	Root    addr.Block     `json:"root"`
	Idle    float64        `json:"idle_seconds"`
	Cycle   bool           `json:"cycle,omitempty"`
	Message string         `json:"message"`
	Remedy  string         `json:"remedy"`
	Chain   []LinkDocument `json:"chain"`
	Others  []addr.Block   `json:"others,omitempty"`
}

// BlockDocument is the activity of one block.
type BlockDocument struct {
	Address    addr.Block     `json:"address"`
	Phase      sdk.Phase      `json:"phase"`
	Message    string         `json:"message,omitempty"`
	Moving     bool           `json:"moving"`
	Reports    bool           `json:"reports"` // false: it reports no activities
	Activities []LinkDocument `json:"activities"`
}

// LinkDocument is one edge.
type LinkDocument struct {
	Address addr.Block `json:"address"`
	On      string     `json:"on,omitempty"` // the block waited for, if any
	What    string     `json:"what"`
	Detail  string     `json:"detail,omitempty"`
	Have    int64      `json:"have,omitempty"`
	Want    int64      `json:"want,omitempty"`
	Unit    string     `json:"unit,omitempty"`
	Age     float64    `json:"age_seconds"`
	Idle    float64    `json:"idle_seconds"`
	Rest    bool       `json:"rest,omitempty"`
	Text    string     `json:"text"`
}

// Stack holds the stacks of one program.
type Stack struct {
	Address addr.Block `json:"address"`
	Program string     `json:"program"`
	PID     int        `json:"pid"`
	Text    string     `json:"text,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// Document returns the machine-readable form.
func (r *Report) Document(now time.Time, after time.Duration) *Document {
	if after <= 0 {
		after = DefaultAfter
	}
	d := &Document{FormatVersion: FormatVersion, Time: now.UTC(), Engine: true, After: after.Seconds(),
		Stalls: []StallDocument{}}
	for _, s := range r.Stalls {
		d.Stalls = append(d.Stalls, StallDocument{
			Root: s.Root, Idle: seconds(s.Idle), Cycle: s.Cycle, Message: s.Sentence(), Remedy: s.Remedy(),
			Chain: linkDocuments(s.Chain, now), Others: s.Others,
		})
	}
	for _, b := range r.Blocks {
		d.Blocks = append(d.Blocks, BlockDocument{
			Address: b.Address, Phase: b.Phase, Message: b.Message, Moving: b.Moving, Reports: b.Reports,
			Activities: linkDocuments(b.Links, now),
		})
	}
	return d
}

func linkDocuments(links []Link, now time.Time) []LinkDocument {
	out := []LinkDocument{}
	for _, l := range links {
		a := l.Activity
		d := LinkDocument{
			Address: l.Address, What: a.What, Detail: a.Detail, Have: a.Have, Want: a.Want, Unit: a.Unit,
			Age: seconds(now.Sub(a.Began)), Idle: seconds(l.Idle), Rest: a.Rest, Text: l.String(),
		}
		if !l.Own() {
			d.On = l.On.String()
		}
		out = append(out, d)
	}
	return out
}

// seconds is rounded to a tenth.
func seconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)) / float64(time.Second)
}
