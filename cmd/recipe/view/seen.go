package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	enginerun "github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// The phases of a block that was up when its engine was killed.
const (
	alive   = "alive"   // its process runs; its phase is unknown
	dead    = "dead"    // it does not
	unknown = "unknown" // an external server that was not checked
)

// Seen is what was found out about a run now, beside its record and its log.
type Seen struct {
	Blocks  map[addr.Block]Sight
	Waiting []enginerun.Waiting // what its engine cannot write
	Builds  session.Builds      // programs of its processes that are not this one
	Healed  []enginerun.Healed  // files that its engine has written again
	Ending  *enginerun.Ending   // nil: it is not being stopped
	Silent  string              // why its engine does not answer, although it should
	// where the directories of live processes lay when those were started, when the project was moved since
	Moved map[addr.Block]string
}

// Sight is what one block is now.
type Sight struct {
	Phase string
	Last  string // phase when an engine last looked, when that is another thing
	Alive *bool  // nil: it has no process of the run's
}

// Unwatched is what is known of a run on which no engine works: its record says what blocks were when one did.
func Unwatched(run *state.Run, found map[addr.Block]plan.Observed) Seen {
	seen := Seen{Blocks: map[addr.Block]Sight{}}
	seen.moved(found)
	if run.Status != state.Running {
		return seen
	}
	for a, rec := range run.Blocks {
		phase := sdk.Phase(rec.Phase)
		if rec.Intent == state.IntentDone || phase.Over() || phase == sdk.Pending || phase == "" {
			continue
		}
		yes := found[a].Alive
		switch {
		case rec.External:
			seen.Blocks[a] = Sight{Phase: unknown, Last: rec.Phase}
		case yes:
			seen.Blocks[a] = Sight{Phase: alive, Last: rec.Phase, Alive: &yes}
		default:
			seen.Blocks[a] = Sight{Phase: dead, Last: rec.Phase, Alive: &yes}
		}
	}
	return seen
}

// Watched is what an engine says of the run that it works on.
func Watched(live map[addr.Block]plan.Observed, waiting []enginerun.Waiting) Seen {
	seen := Seen{Blocks: map[addr.Block]Sight{}, Waiting: waiting}
	seen.moved(live)
	for a, now := range live {
		if now.Phase != "" {
			seen.Blocks[a] = Sight{Phase: now.Phase}
		}
	}
	return seen
}

func (s *Seen) moved(now map[addr.Block]plan.Observed) {
	for a, o := range now {
		if o.Alive && o.Moved != "" {
			if s.Moved == nil {
				s.Moved = map[addr.Block]string{}
			}
			s.Moved[a] = o.Moved
		}
	}
}

// newer reports that the record and the log do not know what was seen of a block.
func (s Seen) newer(now Sight) bool { return now.Last != "" || len(s.Waiting) > 0 }

// Overlay puts on a snapshot what is known now. Blocks on which an engine works are as the log says, unless the engine
// cannot write it.
func (s Seen) Overlay(snap *snapshot.Snapshot) {
	for a, now := range s.Blocks {
		blk := snap.Blocks[a.String()]
		if blk == nil || !s.newer(now) {
			continue
		}
		if blk.Phase = now.Phase; now.Last != "" {
			blk.Phase = fmt.Sprintf("%s (was %s)", now.Phase, now.Last)
		}
	}
}

// Troubles shows the problems of a run's engine.
func Troubles(w io.Writer, s Style, seen Seen) error {
	for _, x := range seen.Waiting {
		if _,
			err := fmt.Fprintf(w,
			"\n%s the engine waits for space on the disk of %s (%s free) since %s: %s\n  %s the run continues and "+
				"no block is started; free space there\n",
			s.Yellow("Degraded:"), x.Path, disk.Size(x.Free), x.Since.Local().Format("15:04:05"), x.Reason,
			s.Dim("→")); err != nil {
			return err
		}
	}
	if err := builds(w, s, seen.Builds); err != nil {
		return err
	}
	if err := ending(w, s, seen.Ending); err != nil {
		return err
	}
	for _, x := range seen.Healed {
		if _, err := fmt.Fprintf(w, "\n%s %s (%s)\n", s.Yellow("Healed:"), x.Message,
			x.Time.Local().Format("15:04:05")); err != nil {
			return err
		}
	}
	if err := moved(w, s, seen.Moved); err != nil {
		return err
	}
	if seen.Silent != "" {
		_, err := fmt.Fprintf(w, "\n%s %s\n", s.Yellow("The engine does not answer; this may be out of date:"),
			seen.Silent)
		return err
	}
	return nil
}

// ending shows what a stop waits for, and until when.
func ending(w io.Writer, s Style, e *enginerun.Ending) error {
	if e == nil {
		return nil
	}
	at := func(t time.Time) string { return t.Local().Format(time.TimeOnly) }
	text := fmt.Sprintf("\n%s since %s: %s\n", s.Yellow("Stopping"), at(e.Since), OneLine(e.Why))
	for _, b := range e.Stopping {
		text += fmt.Sprintf("  %s was asked to stop at %s; its process is killed if it has not ended at %s\n", b.Address,
			at(b.Asked), at(b.Killed))
	}
	_, err := io.WriteString(w, text+"  "+s.Dim("→")+
		" recipe stop waits for it; recipe stop --kill ends everything now, without a last checkpoint\n")
	return err
}

// builds lists the processes that run another build of recipe.
func builds(w io.Writer, s Style, b session.Builds) error {
	if list := b.List(); len(list) > 0 {
		text := "\n" + s.Yellow("Another build:") + " this program is " + b.Own + "; these run another one:\n  " +
			strings.Join(list, "\n  ") + "\n  " + s.Dim("→") + " " + session.BuildRemedy + "\n"
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	if b.Gone == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s the program of the engine, %s, was removed or replaced since it started; "+
		"a block that starts runs the file that is there then, or else the engine's own build\n", s.Yellow("Program:"),
		b.Gone)
	return err
}

// moved lists the processes that still use the old folder of a moved project.
func moved(w io.Writer, s Style, from map[addr.Block]string) error {
	if len(from) == 0 {
		return nil
	}
	lines := []string{"", s.Yellow("Moved:") +
		" the project was moved during its run; these processes still write to the old folder:"}
	for _, a := range slices.SortedFunc(maps.Keys(from), addr.Compare) {
		lines = append(lines, "  "+a.String()+" in "+from[a])
	}
	lines = append(lines, "  "+s.Dim("→")+" recipe apply restarts them here", "")
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}
