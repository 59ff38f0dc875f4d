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
		if e := snap.Outputs[name]; hasValue(e) {
			known = append(known, e)
		}
	}
	return known
}

// hasValue reports whether an output has a value: a trainer has no checkpoint at first.
func hasValue(e event.Event) bool { return e.Sensitive || e.Value != nil && e.Value != "" }

// longestOutput is how many characters of an output are shown beside others: a path is never cut.
const longestOutput = 1000

// RunOutputs shows the outputs of a run under a heading, long ones in part; nothing when it has none.
func RunOutputs(w io.Writer, s Style, outputs map[string]state.RecordedOutput) error {
	if len(outputs) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", s.Bold("Outputs:")); err != nil {
		return err
	}
	return eachOutput(w, "  ", outputs, func(name, text string) string {
		runes := []rune(text)
		if len(runes) <= longestOutput {
			return text
		}
		return fmt.Sprintf("%s… (%d characters: recipe output %s shows all)", string(runes[:longestOutput]), len(runes), name)
	})
}

// Outputs shows every output of a run, a line each, after a prefix.
func Outputs(w io.Writer, prefix string, outs map[string]state.RecordedOutput) error {
	return eachOutput(w, prefix, outs, func(_, text string) string { return text })
}

func eachOutput(w io.Writer, prefix string, outs map[string]state.RecordedOutput,
	shown func(name, text string) string) error {
	for _, name := range slices.Sorted(maps.Keys(outs)) {
		text := Value(outs[name].Value)
		switch {
		case outs[name].Sensitive:
			text = "(sensitive)"
		case outs[name].Value == nil: // the run has ended without it
			text = "(not known)"
		}
		if _, err := fmt.Fprintf(w, "%s%s = %s\n", prefix, OneLine(name), shown(name, text)); err != nil {
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
