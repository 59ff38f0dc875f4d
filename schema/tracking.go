package schema

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Tracking is one tracking block: an experiment tracker to which the run is passed on.
type Tracking struct {
	Tracker string // tensorboard
	Name    string
	Dir     string // of files; empty: in the run directory
	Range   hcl.Range
}

// trackers are the first labels of tracking blocks.
func trackers() []string { return []string{"tensorboard"} }

type trackingArguments struct {
	Dir string `recipe:"dir" doc:"folder of the tracker's files; default: tracking/ in the run directory"`
}

// tracking checks what a schema cannot say, and keeps the block.
func (d *decoder) tracking(n *node, s *spec.Schema, v cty.Value) {
	o := n.observer
	if names := trackers(); !slices.Contains(names, o.tracker) {
		d.report(problem(n.header, "Unknown tracker", fmt.Sprintf("There is no tracker %q; known are %s.%s", o.tracker,
			orNothing(names), didYouMean(o.tracker, names))))
		return
	}
	var b trackingArguments
	if err := spec.Decode(v, s, &b); err != nil {
		d.report(problem(n.header, "Invalid tracking block", err.Error()))
		return
	}
	t := &Tracking{Tracker: o.tracker, Name: o.name, Dir: b.Dir, Range: n.header}
	p := d.ev.p
	p.trackers = slices.DeleteFunc(p.trackers, func(u *Tracking) bool {
		return u.Tracker == t.Tracker && u.Name == t.Name
	})
	p.trackers = append(p.trackers, t)
}
