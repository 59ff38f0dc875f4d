package live

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
)

const (
	newestGroups = 16                    // that the overview shows
	readWithin   = 50 * time.Millisecond // fewer, when they are so long that reading them takes this long
)

// recorded reads the recorded groups of a run. It is safe for concurrent use.
type recorded struct {
	mu      sync.Mutex
	dir     state.Dir
	readers map[string]*samples.Reader // by trajectories block
	pieces  transcript.Tokenizers
	shown   []sample // the newest as they were read last
}

// reference is one group of one block.
type reference struct {
	block string
	group *samples.Group
}

func (r *recorded) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reader := range r.readers {
		reader.Close()
	}
	r.readers, r.dir = nil, ""
}

// newest returns how much is recorded, and the newest groups as text, newest first.
func (r *recorded) newest(dir state.Dir) (queue, []sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dir = dir
	list, q := r.list()
	var out []sample
	began := time.Now()
	for i := len(list) - 1; i >= 0 && len(out) < newestGroups && time.Since(began) < readWithin; i-- {
		out = append(out, r.text(list[i]))
	}
	r.shown = out
	return q, out
}

// list returns all groups, oldest first.
func (r *recorded) list() (list []reference, q queue) {
	if r.dir == "" {
		return nil, q
	}
	folder := filepath.Join(string(r.dir), "samples")
	entries, _ := os.ReadDir(folder) // none yet
	for _, e := range entries {
		if !e.IsDir() || samples.OfEvaluation(e.Name()) {
			continue
		}
		reader := r.readers[e.Name()]
		if reader == nil {
			var err error
			if reader, err = samples.NewReaderIn(string(r.dir), filepath.Join("samples", e.Name())); err != nil {
				continue
			}
			if r.readers == nil {
				r.readers = map[string]*samples.Reader{}
			}
			r.readers[e.Name()] = reader
		}
		_, _ = reader.Refresh() // what was read before an error is shown
		groups, lost := reader.Groups()
		q.recorded, q.lost, q.groups = true, q.lost+lost, q.groups+len(groups)
		for _, g := range groups {
			switch {
			case g.Dropped != nil:
				q.dropped++
			case g.Used == nil:
				q.waiting++
			}
			list = append(list, reference{e.Name(), g})
		}
	}
	if len(r.readers) > 1 {
		slices.SortStableFunc(list, func(a, b reference) int { return a.group.Time.Compare(b.group.Time) })
	}
	return list, q
}

// sample returns the group that is so many groups older than another, and its position from the newest; nil when there
// is none.
func (s *source) sample(from *sample, older int) (*sample, int) {
	r := &s.records
	r.mu.Lock()
	defer r.mu.Unlock()
	list, _ := r.list()
	if len(list) == 0 {
		return nil, 0
	}
	at := len(list) - 1
	if from != nil {
		if i := slices.IndexFunc(list, func(x reference) bool {
			return x.block == from.block && x.group.ID == from.id
		}); i >= 0 {
			at = i
		}
	}
	at = min(max(at-older, 0), len(list)-1)
	out := r.text(list[at])
	return &out, len(list) - 1 - at
}

// text reads the body of a group.
func (r *recorded) text(x reference) sample {
	g := x.group
	out := sample{block: printable.Text(x.block), id: g.ID, time: g.Time, versions: g.Versions,
		environment: printable.Text(printable.Limit(g.Environment, 200))}
	switch {
	case g.Dropped != nil:
		out.state = "dropped: " + printable.Text(g.Dropped.Reason)
	case g.Used != nil:
		out.state = fmt.Sprintf("trained at step %d", g.Used.Step)
	default:
		out.state = "waiting"
	}
	if i := slices.IndexFunc(r.shown, func(s sample) bool { return s.id == out.id && s.block == out.block }); i >= 0 {
		out.prompt, out.completions, out.failed = r.shown[i].prompt, r.shown[i].completions, r.shown[i].failed
		return out
	}
	body, _, err := r.readers[x.block].Body(g)
	if err == nil {
		err = out.fill(body, r.pieces.Of(r.dir))
	}
	if err != nil {
		out.failed = "unreadable: " + printable.Text(printable.Limit(err.Error(), 300))
	}
	return out
}

// fill reads the prompt that all completions share, and each completion.
func (s *sample) fill(body []byte, tokenizer *transcript.Tokenizer) error {
	group, err := transcript.Parse(body)
	if err != nil {
		return fmt.Errorf("group %d: %w", s.id, err)
	}
	t := transcript.Of(group, tokenizer)
	all := make([][]transcript.Message, len(group.Tokens))
	for i := range all {
		all[i] = t.Messages(i)
	}
	shared := transcript.Shared(all)
	for i := range all {
		if i == 0 {
			s.prompt = all[0][:shared]
		}
		c := completion{messages: all[i][shared:]}
		if i < len(group.Scores) {
			c.score = group.Scores[i]
		}
		s.completions = append(s.completions, c)
	}
	slices.SortStableFunc(s.completions, func(a, b completion) int { return cmp.Compare(b.score, a.score) })
	return nil
}
