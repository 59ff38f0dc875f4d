package trajectories

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// keptDeliveries is for how many of the newest batches a trainer may still tell what it computed.
const keptDeliveries = 64

// delivery is a batch that was delivered, and its groups in order.
type delivery struct {
	number uint64
	step   int64
	groups []uint64
}

// recordPosts adds groups to the record of samples. It is called with the lock; kept is nil where a group was dropped.
func (b *state) recordPosts(groups []*group.Group, kept []*queue.Item, at int64) {
	if b.record == nil {
		return
	}
	for i, it := range kept {
		if it == nil {
			continue
		}
		l := samples.Line{ID: it.ID, Time: time.Unix(0, at).UTC(), Environment: b.envName(it.Env),
			Sequences: groups[i].Sequences, Tokens: it.Tokens, Longest: it.Longest}
		if it.MinVersion >= 0 {
			l.Versions = []int64{it.MinVersion, it.MaxVersion}
		}
		b.record.Post(l, groups[i].Recorded()...)
	}
}

// recordDelivery notes for which step a batch was delivered. It is called with the lock.
func (b *state) recordDelivery(out *batch) {
	if b.record == nil {
		return
	}
	if len(b.given) == keptDeliveries {
		b.given = append(b.given[:0], b.given[1:]...)
	}
	b.given = append(b.given, delivery{out.number, b.doc.Step, out.ids()})
	for _, id := range out.ids() {
		b.record.Deliver(samples.Line{ID: id, Step: b.doc.Step, Version: version(b.doc.Version)})
	}
}

func version(v int64) *int64 {
	if v < 0 {
		return nil
	}
	return &v
}

// trainedBatch takes what a trainer computed for the tokens of a leased batch, for the record of samples.
func (s *Server) trainedBatch(w http.ResponseWriter, r *http.Request) error {
	buf := s.pool.get()
	defer s.pool.put(buf)
	held := share{of: s.memory}
	defer held.release()
	if err := s.read(w, r, buf, s.cfg.MaxBody, &held); err != nil {
		return err
	}
	var t trajectory.Trained
	if err := json.Unmarshal(buf.Bytes(), &t); err != nil {
		return &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"body"}, Msg: err.Error()}}}
	}
	n, err := s.state.recordTraining(r.PathValue("id"), &t)
	if err != nil {
		return leaseError(err)
	}
	reply(w, http.StatusOK, map[string]any{"status": "success", "recorded": n})
	return nil
}

// recordTraining returns how many groups it recorded: none without a record, or when the batch is not among the newest.
func (b *state) recordTraining(id string, t *trajectory.Trained) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	number, _, err := b.leaseID(id)
	if err != nil {
		return 0, err
	}
	for _, d := range b.given {
		if d.number != number {
			continue
		}
		for i, g := range t.Groups {
			if g.Index < 0 || g.Index >= len(d.groups) {
				return n, &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"body", "groups", i,
					"index"}, Input: g.Index, Msg: fmt.Sprintf("the batch has %d groups, counted from 0", len(d.groups))}}}
			}
			step := t.Step
			if step == 0 {
				step = d.step
			}
			b.record.Train(samples.Line{ID: d.groups[g.Index], Step: step, Version: t.Version},
				samples.Computed{Logprobs: g.Logprobs, Advantages: g.Advantages})
			n++
		}
	}
	return n, nil
}
