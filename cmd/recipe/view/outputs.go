package view

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

// Output is what an event says of an output of the recipe.
func Output(e event.Event) string {
	if e.Sensitive {
		return OneLine(e.Name) + " = (sensitive)"
	}
	raw, err := json.Marshal(e.Value)
	if err != nil { // it was read from JSON
		return OneLine(e.Name) + " = " + value(e.Value)
	}
	return OneLine(e.Name) + " = " + Value(raw)
}

// KnownOutputs are the events of those outputs of the recipe that say something, by name.
func KnownOutputs(snap *snapshot.Snapshot) []event.Event {
	var known []event.Event
	for _, name := range slices.Sorted(maps.Keys(snap.Outputs)) {
		if e := snap.Outputs[name]; tells(e) {
			known = append(known, e)
		}
	}
	return known
}

// tells says whether an output has a value: a trainer has no checkpoint at first.
func tells(e event.Event) bool { return e.Sensitive || e.Value != nil && e.Value != "" }

// RunOutputs shows the outputs of a run under a heading; nothing when it has none.
func RunOutputs(w io.Writer, s Style, outputs map[string]state.RecordedOutput) error {
	if len(outputs) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", s.Bold("Outputs:")); err != nil {
		return err
	}
	return Outputs(w, "  ", outputs)
}

// Outputs shows every output of a run, a line each, after a prefix.
func Outputs(w io.Writer, prefix string, outs map[string]state.RecordedOutput) error {
	for _, name := range slices.Sorted(maps.Keys(outs)) {
		text := Value(outs[name].Value)
		switch {
		case outs[name].Sensitive:
			text = "(sensitive)"
		case outs[name].Value == nil: // the run has ended without it
			text = "(not known)"
		}
		if _, err := fmt.Fprintf(w, "%s%s = %s\n", prefix, name, text); err != nil {
			return err
		}
	}
	return nil
}

// OneOutput prints the value of one output: as JSON, raw for scripts, or as written in a recipe.
func OneOutput(w io.Writer, o state.RecordedOutput, asJSON, raw bool) error {
	if asJSON {
		return JSON(w, o.Value)
	}
	var text string
	if raw && json.Unmarshal(o.Value, &text) == nil {
		_, err := fmt.Fprintln(w, text)
		return err
	}
	_, err := fmt.Fprintln(w, Value(o.Value))
	return err
}
