package lifecycle

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

var update = flag.Bool("update", false, "write the picture in docs/architecture.md anew")

// triggers are all of them, with the phases and origins that matter.
func triggers() []Trigger {
	return []Trigger{Undeclared{}, Redeclared{}, Replanned{From: Recorded}, Replanned{From: Resumed},
		Replanned{From: Scratch},
		Restarted{}, RunEnds{}, Begun{}, Begun{Prepares: true}, Started{}, MayUseMemory{}, Ordered{}, CheckBegan{},
		Concluded{Phase: sdk.Ready}, Concluded{Phase: sdk.Completed}, Concluded{Phase: sdk.Failed},
		Reported{Phase: sdk.Prepared}, Reported{Phase: sdk.Ready}, Reported{Phase: sdk.Degraded}, Reported{Phase: sdk.Failed},
		Exited{Phase: sdk.Completed}, Exited{Phase: sdk.Stopped}, Exited{Phase: sdk.Failed}, Retried{}, DelayOver{}}
}

func TestNext(t *testing.T) {
	pending := State{Phase: sdk.Pending}
	runs := State{Stage: Running, Phase: sdk.Ready, Ready: true}
	delays := State{Stage: Delayed, Phase: sdk.Stopped, From: Resumed}
	with := func(s State, change func(*State)) State { change(&s); return s }
	for _, test := range []struct {
		name     string
		is       State
		triggers []Trigger
		want     State // the zero value: the trigger has no meaning
	}{
		{"a service", pending, []Trigger{Begun{}, Reported{Phase: sdk.Ready}}, runs},
		{"a job", runs, []Trigger{Exited{Phase: sdk.Completed}}, State{Phase: sdk.Completed, Ready: true}},
		{"a block that prepares", pending,
			[]Trigger{Begun{Prepares: true}, Reported{Phase: sdk.Prepared}, MayUseMemory{}, Started{}},
			State{Stage: Running, Phase: sdk.Prepared}},
		{"memory is allowed once", State{Stage: Settled}, []Trigger{MayUseMemory{}}, State{}},
		{"a setting without a process", pending, []Trigger{Concluded{Phase: sdk.Ready}},
			State{Phase: sdk.Ready, Ready: true}},
		{"one that cannot start", pending, []Trigger{Concluded{Phase: sdk.Failed}}, State{Phase: sdk.Failed}},
		{"an external server", pending, []Trigger{CheckBegan{}, Reported{Phase: sdk.Degraded}},
			State{Stage: Checked, Phase: sdk.Degraded, Ready: true}},
		{"an external server that fails", pending, []Trigger{CheckBegan{}, Reported{Phase: sdk.Failed}},
			State{Phase: sdk.Failed}},
		{"a second process", runs, []Trigger{Begun{}}, State{}},
		{"a late report", State{Phase: sdk.Failed}, []Trigger{Reported{Phase: sdk.Ready}}, State{}},

		{"a failure that is retried", runs, []Trigger{Retried{}}, with(delays, func(s *State) { s.Ready = true })},
		{"its delay", delays, []Trigger{DelayOver{}}, State{Phase: sdk.Pending, From: Resumed}},
		{"its delay, ended by a person", delays, []Trigger{Restarted{}}, State{Phase: sdk.Pending, From: Resumed}},
		{"its delay, ended by the end of the run", delays, []Trigger{RunEnds{}},
			State{Goal: Down, Phase: sdk.Stopped, From: Resumed}},
		{"no retry after an order to end", with(runs, func(s *State) { s.Goal = Down }), []Trigger{Retried{}}, State{}},
		{"no retry of what starts again anyway", with(runs, func(s *State) { s.Again = true }), []Trigger{Retried{}},
			State{}},

		{"a restart", runs, []Trigger{Restarted{}, Ordered{}, Exited{Phase: sdk.Stopped}},
			State{Phase: sdk.Pending, From: Resumed}},
		{"a second order to stop", State{Stage: Stopping}, []Trigger{Ordered{}}, State{}},
		{"a restart of a job that is done", State{Phase: sdk.Completed}, []Trigger{Restarted{}},
			State{Phase: sdk.Pending, From: Resumed}},
		{"a replacement", runs, []Trigger{Replanned{From: Scratch}, Exited{Phase: sdk.Stopped}},
			State{Phase: sdk.Pending, From: Scratch}},
		{"a replacement that is restarted meanwhile", runs,
			[]Trigger{Replanned{From: Scratch}, Restarted{}, Exited{Phase: sdk.Stopped}},
			State{Phase: sdk.Pending, From: Scratch}},
		{"a replacement that a later plan takes back", runs,
			[]Trigger{Replanned{From: Scratch}, Replanned{From: Resumed}, Exited{Phase: sdk.Stopped}},
			State{Phase: sdk.Pending, From: Resumed}},
		{"a replacement is one attempt", State{Phase: sdk.Pending, From: Scratch}, []Trigger{Begun{}},
			State{Stage: Running, Phase: sdk.Starting}},

		{"the end of the run", runs, []Trigger{RunEnds{}, Ordered{}, Exited{Phase: sdk.Stopped}},
			State{Goal: Down, Phase: sdk.Stopped, Ready: true}},
		{"the end of the run ends a restart", runs, []Trigger{Restarted{}, RunEnds{}, Exited{Phase: sdk.Stopped}},
			State{Goal: Down, Phase: sdk.Stopped, Ready: true, From: Resumed}},
		{"the end of the run, before a start", pending, []Trigger{RunEnds{}}, State{Goal: Down, Phase: sdk.Stopped}},
		{"the end of the run, of a failed block", State{Phase: sdk.Failed}, []Trigger{RunEnds{}},
			State{Goal: Down, Phase: sdk.Failed}},
		{"the end of the run, of an external server", State{Stage: Checked, Phase: sdk.Ready}, []Trigger{RunEnds{}},
			State{Goal: Down, Phase: sdk.Stopped}},

		{"removed from the recipe", runs, []Trigger{Undeclared{}, Ordered{}, Exited{Phase: sdk.Stopped}},
			State{Goal: Removed, Phase: sdk.Stopped, Ready: true}},
		{"removed, the end of the run", runs, []Trigger{Undeclared{}, RunEnds{}},
			with(runs, func(s *State) { s.Goal = Removed })},
		{"declared again before it was ordered to stop", runs, []Trigger{Undeclared{}, Redeclared{}},
			with(runs, func(s *State) { s.From = Resumed })},
		{"declared again while it stops", runs, []Trigger{Undeclared{}, Ordered{}, Redeclared{}, Exited{Phase: sdk.Stopped}},
			State{Phase: sdk.Pending, From: Resumed}},
		{"declared again without a reason", runs, []Trigger{Redeclared{}}, State{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, ok := test.is, true
			for i, tr := range test.triggers {
				was := s
				if s, ok = Next(s, tr); !ok && (test.want != State{} || i < len(test.triggers)-1 || s != was) {
					t.Fatalf("%s has no meaning in %+v; the state is %+v", name(tr), was, s)
				}
			}
			if ok && s != test.want {
				t.Errorf("the state is %+v; expected %+v", s, test.want)
			}
		})
	}
}

// TestStatesHold follows random triggers and looks at what must hold in every state.
func TestStatesHold(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := State{Phase: sdk.Pending}
		for range 30 {
			tr := triggers()[r.IntN(len(triggers()))]
			was := s
			var ok bool
			s, ok = Next(s, tr)
			switch {
			case !ok && s != was:
				t.Fatalf("%s has no meaning in %+v and changes it to %+v", name(tr), was, s)
			case s.Again && (s.Goal != Up || !s.HasProcess()):
				t.Fatalf("%+v: only a block that is to run and has a process waits to be started again", s)
			case s.Goal != Up && !s.HasProcess() && (s.Stage != Idle || !s.Phase.Over()):
				t.Fatalf("%+v: without a process, a block that is to end has ended", s)
			case s.HasProcess() && !was.HasProcess() && reflect.TypeOf(tr) != reflect.TypeFor[Begun]():
				t.Fatalf("%s in %+v gives a process", name(tr), was)
			case was.HasProcess() && !s.HasProcess() && !slices.Contains([]string{"Exited", "Retried"}, name(tr)):
				t.Fatalf("%s in %+v loses a process", name(tr), was)
			case was.From == Scratch && s.From != Scratch && was.Stage != Idle && name(tr) != "Replanned":
				t.Fatalf("%s in %+v forgets that the next attempt begins from scratch", name(tr), was)
			}
		}
	}
}

func name(t Trigger) string { return reflect.TypeOf(t).Name() }

const begins, ends = "<!-- generated by TestThePicture -->\n", "<!-- end of what is generated -->"

// TestThePicture holds the picture of the states to Next: `go test ./engine/run/lifecycle -update` writes it.
func TestThePicture(t *testing.T) {
	const path = "../../../docs/architecture.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begins)
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", path, begins, ends)
	}
	want := before + begins + picture() + ends + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Errorf("the picture in %s is not that of Next: run go test ./engine/run/lifecycle -update", path)
	}
}

// picture draws the stages of a block that is to run. Idle is two of them: it may begin, or it has ended.
func picture() string {
	label := func(s State) string {
		switch {
		case s.MayBegin():
			return "pending"
		case s.Stage == Idle:
			return "ended"
		}
		return s.Stage.String()
	}
	states := []State{{Phase: sdk.Pending}, {Phase: sdk.Failed}}
	for stage := Preparing; stage <= Checked; stage++ {
		states = append(states, State{Stage: stage, Phase: sdk.Starting})
	}
	type edge struct{ from, to string }
	var edges []edge
	labels := map[edge][]string{}
	for _, s := range states {
		for _, tr := range triggers() {
			to, ok := Next(s, tr)
			e := edge{label(s), label(to)}
			if !ok || e.from == e.to {
				continue
			}
			if labels[e] == nil {
				edges = append(edges, e)
			}
			if n := name(tr); !slices.Contains(labels[e], n) {
				labels[e] = append(labels[e], n)
			}
		}
	}
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n  [*] --> pending\n")
	for _, e := range edges {
		fmt.Fprintf(&b, "  %s --> %s: %s\n", e.from, e.to, strings.Join(labels[e], ", "))
	}
	b.WriteString("```\n")
	return b.String()
}
