package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// ContentsName is the name, in the recorded form of a block, of the digests of the files that it reads: objects of
// digests by file, by the attribute that names them. No body can use it.
const ContentsName = "file_contents"

// contents adds the files that a block reads to its recorded form.
func contents(config map[string]json.RawMessage, b *schema.Block) error {
	if len(b.Contents) == 0 {
		return nil
	}
	by := map[string]map[string]string{}
	for _, c := range b.Contents {
		if by[c.Attribute] == nil {
			by[c.Attribute] = map[string]string{}
		}
		by[c.Attribute][c.File] = c.Digest
	}
	var err error
	config[ContentsName], err = json.Marshal(by)
	return err
}

// compareContents finds the files whose content has changed. A change counts as one of the attribute that names the
// file. A file that the record does not have is new with its attribute, or the record is of an earlier version.
func (op *Operation) compareContents(rec *state.Block, b *schema.Block) {
	var before map[string]map[string]string
	if json.Unmarshal(rec.Config[ContentsName], &before) != nil {
		return
	}
	for _, c := range b.Contents {
		was := before[c.Attribute][c.File]
		if was == "" || was == c.Digest {
			continue
		}
		change := changeOf(b.Schema.Config, c.Attribute)
		x, y := []byte(fmt.Sprintf("%q", was)), []byte(fmt.Sprintf("%q", c.Digest))
		op.because(Reason{Attribute: c.Attribute, Change: change, Before: x, After: y,
			Parts: []Part{{Path: c.Attribute, Before: x, After: y, File: c.File}},
			Text:  fmt.Sprintf("%s: %s has changed", c.Attribute, c.File)})
		op.harden(actionFor(change, op.Kind, op.Alive, rec))
	}
}

// finished says of a run whose jobs are done that a change of other blocks trains nothing.
func finished(ops []*Operation, in Input) []Finding {
	if in.Recorded.Status != state.Completed {
		return nil
	}
	changed := slices.IndexFunc(ops, func(op *Operation) bool { return op.Action == Restart || op.Action == Replace })
	if changed < 0 || slices.ContainsFunc(ops, trains) {
		return nil
	}
	over := "Its trainers have done their steps. "
	if slices.ContainsFunc(ops, func(op *Operation) bool {
		rec := in.Recorded.Blocks[op.Address]
		return rec != nil && rec.EndedBy != ""
	}) {
		over = "Its trainers have done their steps, or stop_when has ended them: changed or removed, it lets them go on. "
	}
	return []Finding{{Severity: "warning", Address: ops[changed].Address,
		Summary: "the run is finished: applying this trains nothing", Detail: over + Anew(in.Recipe)}}
}

// trains reports that an operation starts or continues a job.
func trains(op *Operation) bool {
	return op.Kind.Life() == kind.Job && op.Action != Nothing && op.Action != Stop
}

// Trains reports whether apply would start or continue a job.
func (p *Plan) Trains() bool { return slices.ContainsFunc(p.Operations, trains) }

// Anew is the command that trains a finished run from the beginning, with the same variables.
func Anew(r *schema.Recipe) string {
	file := printable.ShellWord(r.File)
	return fmt.Sprintf("To train anew: recipe destroy --checkpoints -r %s && %s", file,
		printable.ShellWords(append(append([]string{"recipe", "apply"}, r.Arguments()...), r.File)...))
}
