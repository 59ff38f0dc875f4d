package live

import (
	"time"

	"github.com/recipe-rl/recipe/engine/transcript"
)

// facts are what the events of a run do not say. They are asked for every few seconds.
type facts struct {
	standing string              // the state of the run in a few words
	needs    map[string][]string // by block that was started: those that its configuration refers to
	doing    map[string][]string // by block: what it does or waits for
	silent   string              // why the engine, which should answer, does not
	memory   memory
	queue    queue
	newest   []sample // newest first
}

// memory is that of this machine, in bytes. Total 0: unknown.
type memory struct{ used, total uint64 }

// queue describes what the record of samples holds.
type queue struct {
	recorded bool
	groups   int // in the record
	waiting  int // neither trained nor dropped
	dropped  int
	lost     int64 // posted and not recorded
}

// sample is a recorded group as text. All texts are safe to show.
type sample struct {
	block       string
	id          uint64
	time        time.Time
	environment string
	state       string // trained at step 3, waiting, dropped: why
	versions    []int64
	prompt      []transcript.Message // that all completions share
	completions []completion
	failed      string // why it cannot be read
}

type completion struct {
	score    float64
	messages []transcript.Message
}

// mean is the mean score.
func (s *sample) mean() float64 {
	sum := 0.0
	for _, c := range s.completions {
		sum += c.score / float64(len(s.completions))
	}
	return sum
}
