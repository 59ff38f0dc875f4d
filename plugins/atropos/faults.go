package atropos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fault is one way in which an environment that is up brings the trainer nothing.
type fault int

const (
	postsFail fault = iota
	rolloutsFail
	rolloutsEmpty
	kindsOfFault
)

// recovered is how many posts in a row must arrive before those that failed are forgotten: an environment that loses
// every second group would go from degraded to ready and back all the time.
const recovered = 3

// faults are what is wrong with the groups of the block's processes now.
type faults struct {
	now   map[int]*[kindsOfFault]string // of each process
	posts map[int]*posts
}

// posts counts the posts of one process.
type posts struct {
	failed, arrived int64
	inARow          int64 // that arrived since the last failure
	refused         int64 // since the last that arrived
}

func newFaults() faults {
	return faults{now: map[int]*[kindsOfFault]string{}, posts: map[int]*posts{}}
}

func (f faults) set(index int, what fault, text string) {
	if f.now[index] == nil {
		f.now[index] = new([kindsOfFault]string)
	}
	f.now[index][what] = text
}

// clear reports whether any of the faults was there.
func (f faults) clear(index int, what ...fault) (was bool) {
	if f.now[index] == nil {
		return false
	}
	for _, w := range what {
		was = was || f.now[index][w] != ""
		f.now[index][w] = ""
	}
	return was
}

func (f faults) of(index int) *posts {
	if f.posts[index] == nil {
		f.posts[index] = &posts{}
	}
	return f.posts[index]
}

// postFailed notes a post that failed and returns how many have.
func (f faults) postFailed(index int, cause string) int64 {
	p := f.of(index)
	p.failed, p.inARow = p.failed+1, 0
	arrived := "none has arrived"
	if p.arrived > 0 {
		arrived = fmt.Sprintf("%d arrived", p.arrived)
	}
	f.set(
		index,
		postsFail,
		fmt.Sprintf(
			"%s of scored groups failed and %s; the last failed with: %s",
			plural(p.failed, "post", "posts"),
			arrived,
			cause,
		),
	)
	return p.failed
}

// postRefused notes that a post was refused, and returns how many were since the last that arrived, and whether one
// has.
func (f faults) postRefused(index int) (n int64, arrived bool) {
	p := f.of(index)
	p.refused++
	return p.refused, p.arrived > 0
}

// posted notes a post that arrived, and says whether that ends a fault.
func (f faults) posted(index int) bool {
	p := f.of(index)
	p.arrived, p.inARow, p.refused = p.arrived+1, p.inARow+1, 0
	return p.inARow >= recovered && f.clear(index, postsFail)
}

// text describes what is wrong; empty when nothing is.
func (f faults) text() string {
	var parts []string
	for _, index := range slices.Sorted(maps.Keys(f.now)) {
		for _, text := range f.now[index] {
			if text != "" {
				parts = append(parts, text)
			}
		}
	}
	return strings.Join(parts, "; ")
}
