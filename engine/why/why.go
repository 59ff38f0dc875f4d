// Package why says who waits for whom in a run, and finds the cause of a stall. It is pure: it follows the activities
// that blocks report from block to block.
package why

import (
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// DefaultAfter is the time without progress after which an edge counts as stalled.
const DefaultAfter = time.Minute

// Block is the current state of one block.
type Block struct {
	Address  addr.Block
	Name     string // under which an environment registers, if known
	Phase    sdk.Phase
	Message  string // of the phase
	Since    time.Time
	Reports  bool // it reports activities; without it Activities is meaningless
	External bool // it runs outside this recipe
	// Activities are what it does. A Detail must not contain values that age, such as a duration.
	Activities []sdk.Activity
	Sign       time.Time    // time of its last event; for a block that does not report
	Silent     time.Time    // since when its process does not answer; zero: it answers
	Needs      []addr.Block // blocks that must be further before this one starts
}

// Input is a run at one moment.
type Input struct {
	Now    time.Time
	After  time.Duration // 0: DefaultAfter
	Blocks []Block
}

// Link is one edge of a chain: a block and what it waits for.
type Link struct {
	Address  addr.Block
	On       addr.Block // the zero Block: it waits for no other block
	Activity sdk.Activity
	Idle     time.Duration // time without progress

	idleTarget bool // the other block has received nothing, so the cause is here
}

// Own reports that the block waits for no other block.
func (l Link) Own() bool { return l.On == addr.Block{} }

// Stall is a part of the run that makes no progress for one reason.
type Stall struct {
	Root   addr.Block    // the block at the end of the chain, which is the cause
	Idle   time.Duration // of the last link
	Cycle  bool          // the chain ends where it starts: each waits for the next one
	Chain  []Link        // from the block that waits, to the root
	Others []addr.Block  // other blocks stalled for the same reason
}

// Report is what a run waits for.
type Report struct {
	Stalls []Stall // the longest chain first
	Blocks []Doing // the activities of every block
}

// Doing is the activity of one block.
type Doing struct {
	Address addr.Block
	Phase   sdk.Phase
	Moving  bool
	Links   []Link // none: it is idle, or does not report (see Reports)
	Reports bool
	Message string
	Since   time.Time
}

// Explain follows what blocks wait for.
func Explain(in Input) *Report {
	if in.After <= 0 {
		in.After = DefaultAfter
	}
	g := &graph{Input: in, blocks: map[addr.Block]*Block{}, links: map[addr.Block][]Link{},
		moving: map[addr.Block]bool{}}
	for i := range in.Blocks {
		g.blocks[in.Blocks[i].Address] = &in.Blocks[i]
	}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		g.links[b.Address] = g.linksOf(b)
	}
	g.spread()
	r := &Report{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		r.Blocks = append(r.Blocks, Doing{
			Address: b.Address, Phase: b.Phase, Moving: g.moving[b.Address], Links: g.links[b.Address],
			Reports: b.Reports, Message: b.Message, Since: b.Since,
		})
	}
	r.Stalls = g.stalls()
	return r
}

type graph struct {
	Input
	blocks map[addr.Block]*Block
	links  map[addr.Block][]Link
	moving map[addr.Block]bool // it makes progress
}

// linksOf finds the blocks that the activities of b name. A pattern that names several becomes a link each.
func (g *graph) linksOf(b *Block) []Link {
	if !b.Silent.IsZero() {
		a := sdk.Activity{What: "its plugin process does not answer", Began: b.Silent, Remedy: "recipe restart " +
			b.Address.String() + " restarts it"}
		return []Link{{Address: b.Address, Activity: a, Idle: a.Idle(g.Now)}}
	}
	var out []Link
	if waits(b.Phase) {
		for _, n := range b.Needs {
			a := sdk.Activity{On: n.String(), What: "to be ready", Began: b.Since}
			out = append(out, Link{Address: b.Address, On: n, Activity: a, Idle: a.Idle(g.Now)})
		}
		return out
	}
	for _, a := range b.Activities {
		link := Link{Address: b.Address, Activity: a, Idle: a.Idle(g.Now)}
		targets := g.targets(b.Address, a.On)
		if len(targets) == 0 {
			out = append(out, link)
			continue
		}
		for _, t := range targets {
			link.On = t
			out = append(out, link)
		}
	}
	if len(out) == 0 && b.Phase == sdk.Degraded {
		a := sdk.Activity{What: "it is degraded", Detail: b.Message, Began: b.Since}
		out = append(out, Link{Address: b.Address, Activity: a, Idle: a.Idle(g.Now)})
	}
	return out
}

// targets are the blocks that a text names: an address, or a pattern of kind, plugin and name.
func (g *graph) targets(self addr.Block, on string) []addr.Block {
	if on == "" {
		return nil
	}
	if a, err := addr.Parse(on); err == nil && g.blocks[a] != nil {
		return []addr.Block{a}
	}
	parts := strings.SplitN(on, ".", 3)
	if len(parts) < 3 {
		return nil
	}
	var out []addr.Block
	for i := range g.Blocks {
		b := &g.Blocks[i]
		if b.Address == self || string(b.Address.Kind) != parts[0] ||
			(parts[1] != "*" && b.Address.Plugin != parts[1]) {
			continue
		}
		if parts[2] == "*" || parts[2] == b.Name || parts[2] == lastPart(b.Address) {
			out = append(out, b.Address)
		}
	}
	return out
}

// lastPart is the name of a block with its key.
func lastPart(a addr.Block) string {
	return a.Name + a.Key.String()
}

// spread finds the blocks that make progress: on their own, or because they wait for such a block. Blocks in a cycle of
// waits are not among them.
func (g *graph) spread() {
	for i := range g.Blocks {
		g.moving[g.Blocks[i].Address] = g.goesOn(&g.Blocks[i])
	}
	for changed := true; changed; {
		changed = false
		for a, links := range g.links {
			if g.moving[a] || g.blocks[a].Phase.Over() {
				continue
			}
			if slices.ContainsFunc(links, func(l Link) bool { return !l.Own() && g.moving[l.On] }) {
				g.moving[a], changed = true, true
			}
		}
	}
}

// goesOn reports whether a block makes progress on its own.
func (g *graph) goesOn(b *Block) bool {
	switch {
	case b == nil || b.Phase.Over():
		return false
	case !b.Silent.IsZero():
		return g.Now.Sub(b.Silent) < g.After
	}
	switch b.Phase {
	case sdk.Preparing, sdk.Starting, sdk.Loading, sdk.Draining:
		return true // bounded by start_timeout and stop_timeout
	case sdk.Pending, sdk.Prepared:
		if len(b.Needs) == 0 {
			return true // it is about to start, or waits for its restart
		}
	default:
	}
	if !b.Reports && !waits(b.Phase) {
		return g.Now.Sub(b.Sign) < g.After
	}
	return slices.ContainsFunc(g.links[b.Address], g.fresh)
}

// waits reports whether a block in a phase waits for what it needs and for nothing else.
func waits(p sdk.Phase) bool { return p == sdk.Pending || p == sdk.Prepared }

// fresh reports that the edge has made progress recently.
func (g *graph) fresh(l Link) bool {
	return !l.Activity.Rest && l.Idle < max(g.After, l.Activity.Patience)
}

// stalls finds the blocks that make no progress, each chain once.
func (g *graph) stalls() []Stall {
	byRoot := map[addr.Block]*Stall{}
	var roots []addr.Block
	for i := range g.Blocks {
		b := &g.Blocks[i]
		if b.Phase.Over() || g.moving[b.Address] ||
			!slices.ContainsFunc(g.links[b.Address], func(l Link) bool { return !l.Activity.Rest }) {
			continue
		}
		s := g.chain(b.Address)
		if root := g.blocks[s.Root]; root != nil && root.Phase == sdk.Completed && s.Root.Kind.Life() == kind.Job {
			continue // its job is done; blocks kept after it wait for nothing
		}
		known := byRoot[s.Root]
		if known == nil {
			byRoot[s.Root] = &s
			roots = append(roots, s.Root)
			continue
		}
		if len(s.Chain) > len(known.Chain) || len(s.Chain) == len(known.Chain) &&
			rank(s.Chain[0].Address) < rank(known.Chain[0].Address) {
			s.Others = append(known.Others, known.Chain[0].Address)
			*known = s
		} else {
			known.Others = append(known.Others, b.Address)
		}
	}
	out := make([]Stall, 0, len(roots))
	for _, root := range roots {
		s := byRoot[root]
		s.Others = slices.DeleteFunc(s.Others, func(a addr.Block) bool {
			return slices.ContainsFunc(s.Chain, func(l Link) bool { return l.Address == a })
		})
		out = append(out, *s)
	}
	slices.SortStableFunc(out, func(a, b Stall) int { return len(b.Chain) - len(a.Chain) })
	return out
}

// rank puts trainers first: they are the purpose of a run.
func rank(a addr.Block) int {
	if a.Kind == kind.Trainer {
		return 0
	}
	return 1
}

// chain follows the edge that has been idle for the longest time, to its end.
func (g *graph) chain(from addr.Block) Stall {
	s := Stall{Root: from}
	seen := map[addr.Block]bool{}
	for at := from; ; {
		s.Root = at
		if seen[at] {
			s.Cycle = true
			for _, l := range s.Chain {
				s.Idle = max(s.Idle, l.Idle)
			}
			return s
		}
		seen[at] = true
		l, ok := g.oldest(at, seen)
		if !ok {
			if g.blocks[at] != nil {
				l := g.end(g.blocks[at])
				s.Chain = append(s.Chain, l)
				s.Idle = max(l.Idle, s.Idle)
			}
			return s
		}
		if on := g.blocks[l.On]; on != nil && g.idle(on) {
			l.Activity.Detail = strings.TrimPrefix(l.Activity.Detail+"; "+l.On.String()+" is idle", "; ")
			l.idleTarget = true
		}
		s.Chain = append(s.Chain, l)
		s.Idle = l.Idle
		if l.Own() || l.idleTarget {
			return s
		}
		at = l.On
	}
}

// oldest is the edge of a block that has been idle for the longest time; edges to new blocks come before those that
// lead back.
func (g *graph) oldest(a addr.Block, seen map[addr.Block]bool) (Link, bool) {
	var best Link
	found := false
	better := func(l Link) bool {
		if back, was := seen[l.On], seen[best.On]; back != was {
			return was
		}
		if l.Activity.Rest != best.Activity.Rest {
			return best.Activity.Rest
		}
		return l.Idle > best.Idle
	}
	for _, l := range g.links[a] {
		if !found || better(l) {
			best, found = l, true
		}
	}
	return best, found
}

// idle reports that a block which reports activities has none.
func (g *graph) idle(b *Block) bool {
	return b.Reports && b.Phase == sdk.Ready && b.Silent.IsZero() && len(g.links[b.Address]) == 0
}

// end is the last link of a chain that ends at a block without activities.
func (g *graph) end(b *Block) Link {
	a := sdk.Activity{Began: b.Since}
	switch {
	case b.Phase.Over():
		a.What, a.Detail = "it is "+string(b.Phase), b.Message
	case b.External:
		a.What = "it is external, and its state is unknown"
	default:
		a.What, a.Progressed, a.Sign = "it does not report its activities", b.Sign, "event"
	}
	return Link{Address: b.Address, Activity: a, Idle: a.Idle(g.Now)}
}
