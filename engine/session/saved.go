package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// SavedVersion is the format version of a saved plan.
const SavedVersion = 1

// Saved is a plan in a file, with what it was made of: the values of variables and settings, and the digests of
// everything else that it depends on. It contains no value of a sensitive variable or setting and no value of env(),
// so
// apply needs the same ones again.
type Saved struct {
	FormatVersion int               `json:"saved_plan_version"`
	File          string            `json:"recipe_file"`
	ID            string            `json:"plan_id,omitempty"` // a plan of an earlier version has none
	Run           string            `json:"run_id,omitempty"`  // of the run that it was made for; empty: a new one
	Schemas       map[string]string `json:"schemas"`           // digest of each plugin's schema, by KIND/NAME
	// Sources are the packages and Python files of plugins that are not built in, with their digests, by KIND/NAME.
	Sources map[string]string `json:"sources,omitempty"`
	// Variables are the values of the recipe's variables; a plan of an earlier version has none.
	Variables map[string]input.Planned `json:"variables,omitempty"`
	Settings  []SavedSetting           `json:"settings,omitempty"` // --set, in the order given
	Targets   []addr.Block             `json:"targets,omitempty"`
	// FromScratch is --from-scratch.
	FromScratch bool       `json:"from_scratch,omitempty"`
	Plan        *plan.Plan `json:"plan"`
}

// SavedSetting is one --set of a plan.
type SavedSetting struct {
	At     string `json:"at"` // address and attribute
	Value  string `json:"value,omitempty"`
	Secret bool   `json:"sensitive,omitempty"` // the value is not stored
}

// SaveAs writes a plan to a file that only its owner can read.
func (s *Session) SaveAs(ctx context.Context, path string, p *plan.Plan) error {
	rec, err := state.Read(s.Dir)
	if err != nil {
		return err
	}
	variables, err := s.Recipe.Planned()
	if err != nil {
		return err
	}
	id, err := state.NewID()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(Saved{FormatVersion: SavedVersion, File: s.Recipe.File, ID: id, Run: rec.ID,
		Schemas: schemas(s.Recipe), Sources: sources(s.Recipe), Variables: variables, Settings: settings(s.Recipe),
		Targets: s.Request.Targets, FromScratch: s.Request.FromScratch, Plan: p}, "", "  ")
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	if err := outfile.Write(ctx, path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// ReadSaved reads a plan written by SaveAs.
func ReadSaved(path string) (*Saved, error) {
	b, err := parse.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the saved plan: %w", err)
	}
	var out Saved
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&out); err != nil || out.FormatVersion == 0 || out.Plan == nil {
		return nil, fmt.Errorf("%s is not a saved plan (recipe plan --out writes one)", path)
	}
	if out.FormatVersion > SavedVersion {
		return nil,
			fmt.Errorf(
				"the saved plan %s has format version %d; this program reads versions up to %d: apply it with the "+
					"version that wrote it", path, out.FormatVersion, SavedVersion)
	}
	return &out, nil
}

// MovedError lists the changes since a plan was saved.
type MovedError struct{ What []string }

func (e *MovedError) Error() string {
	return "the saved plan is out of date: " + strings.Join(e.What, "; ") + ". Make a new one with recipe plan --out"
}

// Unwrap makes errors.Is(err, ErrMoved) true.
func (e *MovedError) Unwrap() error { return ErrMoved }

// appliedAlready says when a saved plan that no longer fits was applied, and what became of that; nil: it was not.
func appliedAlready(saved *Saved, rec *state.Run) error {
	i := slices.IndexFunc(rec.Plans, func(p state.AppliedPlan) bool { return saved.ID != "" && p.ID == saved.ID })
	if i < 0 {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("this saved plan was applied already, on %s, to the run %s of %s, which is %s",
			rec.Plans[i].Applied.UTC().Format("2006-01-02 15:04:05 UTC"), rec.ID, rec.Recipe, rec.Status),
		Detail: "A saved plan is applied once; nothing was changed.",
		Remedy: "recipe status shows the run; for another change, or to continue it, make a new plan with " +
			"recipe plan --out",
	}
}

// Fits compares a saved plan with the current recipe, plugins and run, and returns a *MovedError with every
// difference,
// unless it no longer fits because it was applied. now is the current plan.
func (s *Session) Fits(saved *Saved, now *plan.Plan) error {
	rec, err := state.Read(s.Dir)
	if err != nil {
		return err
	}
	runID := rec.ID
	var moved []string
	if saved.Plan.Digest != s.Recipe.Digest {
		moved = append(moved, s.changed(saved)...)
	}
	have := schemas(s.Recipe)
	for _, name := range union(saved.Schemas, have) {
		if have[name] != "" && saved.Schemas[name] != "" && saved.Schemas[name] != have[name] {
			// added and removed blocks are named below
			moved = append(moved, "the schema of plugin "+name+" has changed")
		}
	}
	code := sources(s.Recipe)
	for _, name := range slices.Sorted(maps.Keys(code)) {
		if was := saved.Sources[name]; was != "" && was != code[name] {
			moved = append(moved, fmt.Sprintf("plugin %s is now %s (saved: %s)", name, code[name], was))
		}
	}
	if saved.Run != "" && saved.Run != runID {
		moved = append(moved, "the run that it was made for no longer exists")
	}
	for _, op := range now.Operations {
		was := saved.Plan.Operation(op.Address)
		if was == nil {
			moved = append(moved, fmt.Sprintf("%s is new", op.Address))
		} else if was.Action != op.Action {
			moved = append(moved, fmt.Sprintf("the action for %s is now %s (saved: %s)", op.Address, op.Action, was.Action))
		}
	}
	for _, op := range saved.Plan.Operations {
		if now.Operation(op.Address) == nil {
			moved = append(moved, fmt.Sprintf("%s was removed", op.Address))
		}
	}
	if len(moved) > 0 {
		if err := appliedAlready(saved, rec); err != nil {
			return err
		}
		return &MovedError{What: moved}
	}
	return nil
}

func schemas(r *schema.Recipe) map[string]string {
	out := map[string]string{}
	for _, b := range r.Blocks {
		out[string(b.Addr.Kind)+"/"+b.Addr.Plugin] = b.Schema.Digest
	}
	return out
}

func sources(r *schema.Recipe) map[string]string {
	out := map[string]string{}
	for _, b := range r.Blocks {
		if b.Schema.Source != "" {
			out[string(b.Addr.Kind)+"/"+b.Addr.Plugin] = b.Schema.Source
		}
	}
	return out
}

func union(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
