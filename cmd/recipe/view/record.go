package view

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	enginerun "github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Standing is the state of a run in a few words. Holder is the engine of the run, or nil.
func Standing(run *state.Run, holder *state.Owner) string {
	if run.Status != state.Running {
		return string(run.Status)
	}
	if holder == nil {
		return "running without an engine (apply adopts it)"
	}
	if !run.Paused.IsZero() {
		return "paused"
	}
	return "running"
}

// Complete adds to a snapshot what only the record holds, for a log whose old files were deleted, and removes blocks
// that are no longer part of the run.
func Complete(snap *snapshot.Snapshot, run *state.Run) {
	for a, blk := range snap.Blocks {
		if address, err := addr.Parse(a); err == nil && run.Blocks[address] == nil && sdk.Phase(blk.Phase).Over() {
			delete(snap.Blocks, a)
		}
	}
	for a, rec := range run.Blocks {
		blk := snap.Blocks[a.String()]
		if blk == nil {
			blk = &snapshot.Block{Address: a.String(), Phase: rec.Phase}
			if snap.Blocks == nil {
				snap.Blocks = map[string]*snapshot.Block{}
			}
			snap.Blocks[a.String()] = blk
		}
		if a.Kind.Life() == kind.Job { // others count their start
			blk.Step, blk.Total = max(blk.Step, rec.Step), max(blk.Total, rec.Total)
		}
	}
	Best(snap, run)
}

// Best notes the best checkpoints that a run has recorded.
func Best(snap *snapshot.Snapshot, run *state.Run) {
	for a, rec := range run.Blocks {
		if blk := snap.Blocks[a.String()]; blk != nil {
			blk.Best = rec.Best
		}
	}
}

// Elsewhere is the state of a run whose directory is a copy.
const Elsewhere = "the record of a run elsewhere (only claim accepts it)"

// Foreign names the original of a copied run directory; it prints nothing for an original.
func Foreign(w io.Writer, s Style, e *state.ForeignError) error {
	if e == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s %s\n  %s %s\n", s.Yellow("Not this folder's:"), e, s.Dim("→"), e.Remedy())
	return err
}

// StatusBlock is one block in a StatusDocument.
type StatusBlock struct {
	Address addr.Block `json:"address"`
	Phase   string     `json:"phase"`
	// the last recorded phase, when the current one is unknown
	Last string `json:"last_phase,omitempty"`
	// its process runs; left out for blocks that have none or have ended
	Alive    *bool              `json:"alive,omitempty"`
	Error    string             `json:"error,omitempty"`
	Message  string             `json:"message,omitempty"`
	Attempt  int                `json:"life"`
	Restarts int                `json:"restarts"`
	Step     int64              `json:"step,omitempty"`
	Total    int64              `json:"total,omitempty"`
	Version  int64              `json:"policy_version,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`
	// since when its process does not answer: metrics are old
	Silent time.Time `json:"silent_since,omitzero"`
	// the checkpoint with the best result of the evaluation by which a trainer keeps checkpoints
	Best *state.Best `json:"best_checkpoint,omitempty"`
	// the build of recipe that its process runs, when that is not the one that answers
	Build string `json:"build,omitempty"`
}

// StatusDocument is what status --json prints.
type StatusDocument struct {
	FormatVersion string        `json:"format_version"`
	Recipe        string        `json:"recipe"`
	RunID         string        `json:"run_id"`
	Status        state.Status  `json:"status"`
	Error         string        `json:"error,omitempty"`
	Engine        *state.Owner  `json:"engine"`
	Version       int64         `json:"policy_version"`
	Blocks        []StatusBlock `json:"blocks"`
	Elsewhere     string        `json:"belongs_to,omitempty"` // the run directory that this one is a copy of
	// Waiting lists what the engine cannot write now. Silent is the reason why an engine does not answer. With either,
	// the phases may be old.
	Waiting []enginerun.Waiting `json:"waiting,omitempty"`
	Silent  string              `json:"engine_error,omitempty"`
	// Healed lists the files of the run that the engine has written again after another program had changed them.
	Healed []enginerun.Healed `json:"healed,omitempty"`
	// Ending is set while the run is being stopped.
	Ending *enginerun.Ending `json:"ending,omitempty"`
	// Moved lists live blocks whose process still uses the paths from before the project was moved.
	Moved map[addr.Block]string `json:"moved_from,omitempty"`
	// Evaluations are the evaluation blocks that have begun, by name. Since 1.4.
	Evaluations []StatusEvaluation `json:"evaluations,omitempty"`
}

// StatusJSON writes the machine-readable form of status. Foreign is set for a run directory that was copied from
// elsewhere.
func StatusJSON(w io.Writer, run *state.Run, snap *snapshot.Snapshot, holder *state.Owner, foreign *state.ForeignError,
	seen Seen) error {
	elsewhere := ""
	if foreign != nil {
		elsewhere = foreign.Was.Path
	}
	blocks := []StatusBlock{}
	for _, a := range sorted(run) {
		rec, out := run.Blocks[a], StatusBlock{Address: a}
		out.Build, out.Best = seen.Builds.Blocks[a], rec.Best
		out.Phase, out.Attempt, out.Step, out.Total, out.Error = rec.Phase, rec.Attempt, rec.Step, rec.Total, rec.Error
		if now, ok := seen.Blocks[a]; ok && seen.newer(now) {
			out.Phase, out.Last, out.Alive = now.Phase, now.Last, now.Alive
		}
		if blk := snap.Blocks[a.String()]; blk != nil {
			out.Silent = blk.Silent
			out.Message, out.Restarts, out.Version, out.Metrics = blk.Message, blk.Restarts, blk.Version, blk.Metrics
		}
		blocks = append(blocks, out)
	}
	return JSON(w, StatusDocument{"1.4", run.Recipe, run.ID, run.Status, run.Error, holder, run.Policy.Version, blocks,
		elsewhere, seen.Waiting, seen.Silent, seen.Healed, seen.Ending, seen.Moved,
		statusEvaluations(snap)})
}

func sorted(run *state.Run) []addr.Block {
	out := make([]addr.Block, 0, len(run.Blocks))
	for a := range run.Blocks {
		out = append(out, a)
	}
	slices.SortFunc(out, addr.Compare)
	return out
}

// Record shows the content of run.json.
func Record(w io.Writer, s Style, dir string, run *state.Run) error {
	pairs := [][2]string{
		{"run", run.ID}, {"recipe", run.File}, {"status", string(run.Status)}, {"error", run.Error},
		{"started", moment(run.Started)}, {"ended", moment(run.Ended)}, {"directory", dir},
		{"policy version", version(run.Policy.Version)}, {"weights", run.Policy.Weights},
	}
	if err := listing(w, s, pairs); err != nil {
		return err
	}
	for _, a := range sorted(run) {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := RecordedBlock(w, s, a, run.Blocks[a]); err != nil {
			return err
		}
	}
	return nil
}

// RecordedBlock shows the entry of one block in run.json.
func RecordedBlock(w io.Writer, s Style, a addr.Block, b *state.Block) error {
	if _, err := fmt.Fprintln(w, s.Bold(a.String())); err != nil {
		return err
	}
	pairs := [][2]string{
		{"  phase", b.Phase}, {"  error", b.Error}, {"  started", moment(b.Started)}, {"  ended", moment(b.Ended)},
		{"  attempt", fmt.Sprint(b.Attempt)}, {"  address", b.Listen},
	}
	if b.Total > 0 || b.Step > 0 {
		pairs = append(pairs, [2]string{"  step", Steps(&snapshot.Block{Step: b.Step, Total: b.Total})})
	}
	if b.Checkpoint != nil {
		pairs = append(pairs, [2]string{"  checkpoint",
			fmt.Sprintf("%s (step %d)", b.Checkpoint.Path, b.Checkpoint.Step)})
	}
	if b.Best != nil {
		pairs = append(pairs, [2]string{"  best checkpoint", best(b.Best)})
	}
	pairs = append(pairs, values("  ", b.Config)...)
	pairs = append(pairs, values("  → ", b.Outputs)...)
	return listing(w, s, pairs)
}

// best is the best checkpoint of a trainer in words.
func best(b *state.Best) string {
	return fmt.Sprintf("%s (step %d, %s %s)", OneLine(b.Path), b.Step, OneLine(b.Metric), Number(b.Value))
}

func values(prefix string, m map[string]json.RawMessage) [][2]string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	out := make([][2]string, len(names))
	for i, name := range names {
		out[i] = [2]string{prefix + name, Value(m[name])}
	}
	return out
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// listing writes names and values in two columns, without names that have no value.
func listing(w io.Writer, s Style, pairs [][2]string) error {
	var rows [][]Cell
	for _, p := range pairs {
		if p[1] != "" {
			rows = append(rows, []Cell{{Text: p[0], Paint: s.Dim}, {Text: p[1]}})
		}
	}
	for _, l := range Rows(rows, 0) {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}

// Filter selects events of the given blocks (none: of all) that are not older than since. A block without its key
// selects all its instances.
func Filter(blocks []addr.Block, since time.Time) func(event.Event) bool {
	return func(e event.Event) bool {
		if e.Time.Before(since) {
			return false
		}
		if len(blocks) == 0 {
			return true
		}
		a, err := addr.Parse(e.Address)
		if err != nil {
			return false
		}
		for _, b := range blocks {
			if a == b || a.Config() == b {
				return true
			}
		}
		return false
	}
}
