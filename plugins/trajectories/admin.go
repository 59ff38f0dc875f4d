package trajectories

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// Summary describes a stored group in GET /groups.
type Summary struct {
	ID         uint64 `json:"id"`
	Env        string `json:"env"`
	Size       int    `json:"size"`   // sequences
	Tokens     int    `json:"tokens"` // in all sequences
	Bytes      int64  `json:"bytes"`
	MinVersion int64  `json:"min_version"` // -1 when unknown
	MaxVersion int64  `json:"max_version"`
	State      string `json:"state"` // waiting, buffered, parked or leased
}

// listGroups answers GET /groups?after=ID&limit=N.
func (s *Server) listGroups(w http.ResponseWriter, r *http.Request) error {
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > 1000 {
		limit = 1000
	}
	b := s.state
	b.mu.Lock()
	var all []Summary
	add := func(state string) func(*queue.Item) {
		return func(it *queue.Item) {
			if it.ID > after {
				all = append(
					all,
					Summary{ID: it.ID, Env: b.envName(it.Env), Size: it.Size, Tokens: it.Tokens, Bytes: it.Bytes,
						MinVersion: it.MinVersion, MaxVersion: it.MaxVersion, State: state},
				)
			}
		}
	}
	b.queue.Each(add("waiting"))
	for _, buffer := range b.buffers {
		buffer.Each(add("buffered"))
	}
	for i := range b.parked {
		add("parked")(&b.parked[i])
	}
	for _, out := range b.batches {
		for i := range out.items {
			add("leased")(&out.items[i])
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(a, b Summary) int { return int(int64(a.ID) - int64(b.ID)) })
	all = all[:min(limit, len(all))]
	reply(w, http.StatusOK, map[string][]Summary{"groups": append([]Summary{}, all...)})
	return nil
}

func (b *state) envName(id int) string {
	if id < 0 || id >= len(b.doc.Envs) {
		return "anonymous"
	}
	return b.doc.Envs[id].RealName
}

// showGroup answers GET /groups/{id} with the stored JSON.
func (s *Server) showGroup(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return &refusal{code: http.StatusNotFound, message: "a group's id is a number, as /groups lists them"}
	}
	done, err := s.memory.acquire(r.Context(), s.state.sizeOf(id))
	if err != nil {
		return err
	}
	defer done()
	text, err := s.state.store.Body(r.Context(), id, nil)
	if errors.Is(err, store.ErrNotFound) {
		return &refusal{
			code:    http.StatusNotFound,
			message: "no group of this id is stored: it has been delivered, or never existed",
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
	return nil
}

// sizeOf is the size of a stored group, 0 when there is none.
func (b *state) sizeOf(id uint64) (size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	look := func(it *queue.Item) {
		if it.ID == id {
			size = it.Bytes
		}
	}
	b.queue.Each(look)
	for _, buffer := range b.buffers {
		buffer.Each(look)
	}
	for i := range b.parked {
		look(&b.parked[i])
	}
	for _, out := range b.batches {
		for i := range out.items {
			look(&out.items[i])
		}
	}
	return size
}

// EnvReport describes one environment in GET /environments.
type EnvReport struct {
	ID            int              `json:"id"` // -1 for groups of no known environment
	Name          string           `json:"name"`
	Connected     bool             `json:"connected"`
	LastSeen      float64          `json:"last_seen_seconds"`
	Weight        float64          `json:"weight"`
	GroupSize     int64            `json:"group_size"`
	Minimum       *float64         `json:"min_batch_allocation"`
	GroupsIn      int64            `json:"groups_in"`
	SequencesIn   int64            `json:"sequences_in"`
	TokensIn      int64            `json:"tokens_in"`
	GroupsOut     int64            `json:"groups_out"`
	Waiting       int              `json:"waiting_sequences"`
	Dropped       map[string]int64 `json:"dropped"`
	DropRate      float64          `json:"drop_rate"`      // dropped groups over groups that arrived
	MeanStaleness *float64         `json:"mean_staleness"` // in policy versions; null when no delivered group knew its own
	Lag           *int64           `json:"lag"`            // staleness of the last delivered group
}

func (s *Server) environments(w http.ResponseWriter, _ *http.Request) error {
	b := s.state
	b.mu.Lock()
	reports := []EnvReport{}
	for id := group.NoEnv; id < len(b.doc.Envs); id++ {
		f := b.counts.env(id)
		if id == group.NoEnv && f.groupsIn == 0 {
			continue
		}
		reports = append(reports, b.report(id, f))
	}
	b.mu.Unlock()
	reply(w, http.StatusOK, map[string][]EnvReport{"environments": reports})
	return nil
}

func (b *state) report(id int, f *flow) EnvReport {
	r := EnvReport{ID: id, Name: b.envName(id), GroupsIn: f.groupsIn, SequencesIn: f.sequencesIn, TokensIn: f.tokensIn,
		GroupsOut: f.groupsOut, Waiting: b.queue.Env(id).Rollouts, Dropped: map[string]int64{}}
	dropped := int64(0)
	for reason, n := range f.dropped {
		r.Dropped[reason] = n
		dropped += n
	}
	if f.groupsIn > 0 {
		r.DropRate = float64(dropped) / float64(f.groupsIn)
	}
	if f.versioned > 0 {
		mean, last := float64(f.staleness)/float64(f.versioned), f.lastStaleness
		r.MeanStaleness, r.Lag = &mean, &last
	}
	if id >= 0 {
		e := &b.doc.Envs[id]
		r.Connected, r.LastSeen = b.connected(id), b.now().Sub(b.seen[id]).Seconds()
		r.Weight, r.GroupSize, r.Minimum = e.Weight, e.GroupSize, e.Minimum
	}
	return r
}

// Arrival is one line of GET /tail.
type Arrival struct {
	Env        string    `json:"env"`
	At         time.Time `json:"at"`
	Size       int       `json:"size"`
	Tokens     int       `json:"tokens"`
	MinVersion int64     `json:"min_version"`
	MaxVersion int64     `json:"max_version"`
	// earlier arrivals that were skipped because the reader was too slow
	Missed int64           `json:"missed,omitempty"`
	Group  json.RawMessage `json:"group"`
}

// watchers are the readers of GET /tail. Without readers, an arrival costs nothing here.
type watchers struct {
	mu  sync.Mutex
	all map[*watcher]bool
}

type watcher struct {
	lines  chan []byte
	queued int // bytes of lines
	missed int64
}

// The bounds on what one watcher makes the server keep, and on their number.
const (
	maxQueued   = 8 << 20
	maxWatchers = 64
)

// add is nil when there are too many.
func (w *watchers) add() *watcher {
	n := &watcher{lines: make(chan []byte, 64)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) >= maxWatchers {
		return nil
	}
	if w.all == nil {
		w.all = map[*watcher]bool{}
	}
	w.all[n] = true
	return n
}

func (w *watchers) remove(n *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, n)
}

// show sends a new group to the readers of /tail; a slow reader misses some and gets their number.
func (s *Server) show(g *group.Group) {
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	if len(s.watchers.all) == 0 {
		return
	}
	s.state.mu.Lock()
	env := s.state.envName(s.state.known(g.Env))
	s.state.mu.Unlock()
	for n := range s.watchers.all {
		if n.queued+len(g.JSON) > maxQueued {
			n.missed++
			continue
		}
		line, err := json.Marshal(Arrival{Env: env, At: time.Now(), Size: g.Size, Tokens: g.Tokens,
			MinVersion: g.MinVersion, MaxVersion: g.MaxVersion, Missed: n.missed, Group: g.JSON})
		if err != nil {
			continue
		}
		select {
		case n.lines <- append(line, '\n'):
			n.missed = 0
			n.queued += len(line) + 1
		default:
			n.missed++
		}
	}
}

// tail streams arrivals, one JSON object a line, until the client leaves.
func (s *Server) tail(w http.ResponseWriter, r *http.Request) error {
	n := s.watchers.add()
	if n == nil {
		return &refusal{
			code:    http.StatusServiceUnavailable,
			message: fmt.Sprintf("%d readers of /tail are connected, which is the limit; end one of them", maxWatchers),
		}
	}
	defer s.watchers.remove(n)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return nil
	}
	for {
		select {
		case line := <-n.lines:
			s.watchers.mu.Lock()
			n.queued -= len(line)
			s.watchers.mu.Unlock()
			if _, err := w.Write(line); err != nil || flush() != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
