package run_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
)

// A failure that names a setting shows its file and line wherever it is shown: in the error of apply, the record and
// the log. One that names none, or a setting that is not in the file, shows what is known.
func TestAFailureShowsWhereItsSettingIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path cty.Path
		want string
	}{
		"a setting":                 {cty.GetAttrPath("model"), "r.hcl:3: no such model"},
		"one that the recipe lacks": {cty.GetAttrPath("replicas"), "r.hcl:2: no such model"},
		"no setting":                {nil, "no such model"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.host.scripts[inf] = func(p *fakeProcess) {
				p.emit(blockevent.PhaseChange{Phase: sdk.Failed, Message: "no such model", Remedy: "Name one.", Path: c.path})
			}
			a := f.apply(f.load(wholeLoop)).wait()
			if c.path != nil {
				c.want = filepath.Join(f.root, c.want)
			}
			var failure *run.Failure
			if !errors.As(a.err, &failure) || failure.Err.Error() != c.want {
				t.Fatalf("error = %v, want %q", a.err, c.want)
			}
			if b := f.recordedBlock(inf); b.Error != c.want {
				t.Errorf("recorded as %q, want %q", b.Error, c.want)
			}
			if !slices.ContainsFunc(f.events(), func(e event.Event) bool {
				return e.Type == event.Phase && e.Phase == "failed" && e.Message == c.want
			}) {
				t.Errorf("the log has no failure %q", c.want)
			}
		})
	}
}

// A failure for several settings shows the place of each.
func TestAFailureShowsWhereEachOfItsSettingsIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.emit(blockevent.PhaseChange{Phase: sdk.Failed, Remedy: "Correct it.", Path: cty.GetAttrPath("model"),
			Message: "wrong:\n  model.path: no such model\n  other: unknown\n  count: too many",
			Places:  map[string]cty.Path{"model.path": cty.GetAttrPath("model"), "count": cty.GetAttrPath("replicas")}})
	}
	a := f.apply(f.load(wholeLoop)).wait()
	at := filepath.Join(f.root, "r.hcl")
	want := "wrong:\n  " + at + ":3: model.path: no such model\n  other: unknown\n  " + at + ":2: count: too many"
	var failure *run.Failure
	if !errors.As(a.err, &failure) || failure.Err.Error() != want {
		t.Fatalf("error = %v, want %q", a.err, want)
	}
}
