package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// step is one journal message: everything that one commit changed, or a piece of a snapshot of everything.
type step struct {
	Put     map[uint64]kept `json:"put,omitempty"`
	Changes []journalled    `json:"changes,omitempty"`

	// A snapshot comes in pieces that follow each other. The last one names how many there are, and replaces what the
	// journal said before.
	Piece   int             `json:"piece,omitempty"` // from 1
	Pieces  int             `json:"pieces,omitempty"`
	Batches []Batch         `json:"batches,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	LastID  uint64          `json:"last_id,omitempty"`
	Keys    []Key           `json:"keys,omitempty"`
}

// journalled is a change without bodies.
type journalled struct {
	Place   map[uint64]uint64 `json:"place,omitempty"`
	Batches []Batch           `json:"batches,omitempty"`
	End     []uint64          `json:"end,omitempty"`
	Ended   []uint64          `json:"ended,omitempty"`
	State   json.RawMessage   `json:"state,omitempty"`
	Keys    []Key             `json:"keys,omitempty"`
}

func journal(c *Change) journalled {
	return journalled{Place: c.Place, Batches: c.Batches, End: c.End, Ended: c.Ended, State: c.State, Keys: c.Keys}
}

// empty says that a change does nothing but put groups.
func (c *journalled) empty() bool {
	return len(c.Place)+len(c.Batches)+len(c.End)+len(c.Ended)+len(c.Keys) == 0 && c.State == nil
}

const (
	snapshotEvery  = 2000 // journal messages
	snapshotGroups = 2000 // in one piece
)

// commit publishes bodies, then the journal message that makes them count.
func (n *NATS) commit(work []submission) {
	if n.broken != nil {
		settle(work, n.broken)
		return
	}
	put, kept, err := n.publish(work)
	if err != nil || len(kept) == 0 {
		settle(kept, err)
		return
	}
	s := step{Put: put}
	for _, w := range kept {
		s.Changes = append(s.Changes, journal(&w.change))
	}
	if err := n.write(s); err != nil {
		// Whether it was written is not known: going on could contradict it.
		n.broken = fmt.Errorf("writing the journal of trajectories: %w; restart the server once the cluster is well", err)
		settle(kept, n.broken)
		return
	}
	gone := n.apply(s)
	settle(kept, nil)
	for _, seq := range gone {
		// What is not deleted now has no entry in the journal, and is deleted when the store is opened.
		_ = n.retry(n.ctx, func(ctx context.Context) error { return n.bodies.DeleteMsg(ctx, seq) })
	}
	if n.since >= snapshotEvery {
		if err := n.snapshot(); err != nil {
			n.broken = err
		}
	}
}

// publish sends the bodies of all puts and waits for the cluster to have them. A change whose body the cluster does
// not take fails alone.
func (n *NATS) publish(work []submission) (put map[uint64]kept, left []submission, err error) {
	type sent struct {
		future jetstream.PubAckFuture
		entry  *Entry
		owner  int
	}
	var all []sent
	put = map[uint64]kept{}
	failed := map[int]error{}
	for i, w := range work {
		for j := range w.change.Put {
			e := &w.change.Put[j]
			msg := n.message(e)
			if size := int64(msg.Size()); size > n.conn.MaxPayload() {
				failed[i] = fmt.Errorf("a group of %d bytes is larger than the NATS cluster takes: raise its max_payload (%d) above that", size, n.conn.MaxPayload())
				break
			}
			f, err := n.js.PublishMsgAsync(msg)
			if err != nil {
				f = nil // the synchronous attempt below says what is wrong
			}
			all = append(all, sent{f, e, i})
		}
	}
	for _, s := range all {
		if failed[s.owner] != nil {
			continue
		}
		seq, err := n.confirm(s.future, s.entry)
		if err != nil {
			failed[s.owner] = fmt.Errorf("storing a group in the NATS cluster: %w", err)
			continue
		}
		put[s.entry.ID] = kept{Seq: seq, Meta: s.entry.Meta}
	}
	for i, w := range work {
		if failed[i] == nil {
			left = append(left, w)
			continue
		}
		for _, e := range w.change.Put {
			delete(put, e.ID)
		}
		w.ticket.resolve(failed[i])
	}
	return put, left, nil
}

func (n *NATS) message(e *Entry) *nats.Msg {
	msg := nats.NewMsg(n.subject("bodies"))
	msg.Data = e.Body
	// The id makes a repeated attempt harmless: the cluster stores one of them.
	msg.Header.Set(jetstream.MsgIDHeader, "g"+strconv.FormatUint(e.ID, 10)+"-"+strconv.FormatInt(e.Meta.At, 36))
	return msg
}

// confirm waits for the acknowledgement of a body and sends it again while the cluster is in trouble.
func (n *NATS) confirm(f jetstream.PubAckFuture, e *Entry) (seq uint64, err error) {
	if f != nil {
		select {
		case ack := <-f.Ok():
			return ack.Sequence, nil
		case <-f.Err():
		case <-time.After(5 * time.Second):
		case <-n.ctx.Done():
			return 0, context.Cause(n.ctx)
		}
	}
	err = n.retry(n.ctx, func(ctx context.Context) error {
		ack, err := n.js.PublishMsg(ctx, n.message(e))
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	return seq, err
}

// write appends a journal message, and makes sure that nobody else writes to the same journal.
func (n *NATS) write(s step) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(n.subject("journal"))
	msg.Data = text
	msg.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("j%d-%d", n.last, time.Now().UnixNano()))
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(n.last, 10))
	err = n.retry(n.ctx, func(ctx context.Context) error {
		ack, err := n.js.PublishMsg(ctx, msg)
		if err == nil {
			n.last = ack.Sequence
		}
		return err
	})
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("another server writes to the queue %q of this cluster: stop it, or give this one another name (nats://…?name=other): %w", n.name, err)
	}
	n.since++
	return err
}

// apply brings the index up to a journal message, and returns the bodies that nothing refers to any more.
func (n *NATS) apply(s step) (gone []uint64) {
	n.indexMu.Lock()
	defer n.indexMu.Unlock()
	for id, k := range s.Put {
		n.index[id] = k
		n.lastID = max(n.lastID, id)
	}
	for _, c := range s.Changes {
		for id, place := range c.Place {
			if k, ok := n.index[id]; ok {
				k.Meta.Place = place
				n.index[id] = k
			}
			n.lastID = max(n.lastID, place)
		}
		for _, b := range c.Batches {
			n.batches[b.Number] = b
		}
		for _, id := range c.End {
			if k, ok := n.index[id]; ok {
				gone = append(gone, k.Seq)
				delete(n.index, id)
			}
		}
		for _, number := range c.Ended {
			delete(n.batches, number)
		}
		if c.State != nil {
			n.state = c.State
		}
		if n.keys = append(n.keys, c.Keys...); len(n.keys) > 2*KeepKeys {
			n.keys = slices.Clone(n.newestKeys())
		}
	}
	return gone
}

func (n *NATS) newestKeys() []Key { return n.keys[max(0, len(n.keys)-KeepKeys):] }

// snapshot writes everything that is known in pieces, and drops the journal before it.
func (n *NATS) snapshot() error {
	ids := slices.Sorted(maps.Keys(n.index)) // the committer alone writes it
	keys := n.newestKeys()
	pieces := max(1, (max(len(ids), len(keys))+snapshotGroups-1)/snapshotGroups)
	part := func(i, n int) (from, to int) { return min(n, i*snapshotGroups), min(n, (i+1)*snapshotGroups) }
	first := uint64(0)
	for i := range pieces {
		s := step{Piece: i + 1, Pieces: pieces, Put: map[uint64]kept{}}
		from, to := part(i, len(ids))
		for _, id := range ids[from:to] {
			s.Put[id] = n.index[id]
		}
		from, to = part(i, len(keys))
		s.Keys = keys[from:to]
		if i == pieces-1 {
			s.Batches, s.State, s.LastID = slices.Collect(maps.Values(n.batches)), n.state, n.lastID
		}
		if err := n.write(s); err != nil {
			return fmt.Errorf("writing a snapshot of the journal: %w", err)
		}
		if i == 0 {
			first = n.last
		}
	}
	n.since = 0
	if err := n.retry(n.ctx, func(ctx context.Context) error {
		return n.journal.Purge(ctx, jetstream.WithPurgeSequence(first))
	}); err != nil {
		return fmt.Errorf("dropping the journal before its snapshot: %w", err)
	}
	return nil
}

// Scan replays the journal, writes a snapshot in its place, and deletes bodies that it does not name.
func (n *NATS) Scan(ctx context.Context, each func(uint64, Meta) error) (Snapshot, error) {
	if err := n.replay(ctx); err != nil {
		return Snapshot{}, fmt.Errorf("reading the journal of trajectories from the NATS cluster: %w", err)
	}
	if n.since > 0 {
		if err := n.snapshot(); err != nil {
			return Snapshot{}, err
		}
	}
	if err := n.sweep(ctx); err != nil {
		return Snapshot{}, fmt.Errorf("deleting bodies that no group refers to: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(n.index)) {
		if err := each(id, n.index[id].Meta); err != nil {
			return Snapshot{}, err
		}
	}
	batches := slices.SortedFunc(maps.Values(n.batches), func(a, b Batch) int { return int(int64(a.Number) - int64(b.Number)) })
	return Snapshot{State: n.state, Batches: batches, LastID: n.lastID, Keys: n.newestKeys()}, nil
}

// messages calls f for every message of a stream in order.
func (n *NATS) messages(ctx context.Context, s jetstream.Stream, headersOnly bool, f func(jetstream.Msg, uint64) error) (last uint64, err error) {
	var info *jetstream.StreamInfo
	if err := n.retry(ctx, func(ctx context.Context) (err error) { info, err = s.Info(ctx); return err }); err != nil {
		return 0, err
	}
	if last = info.State.LastSeq; info.State.Msgs == 0 {
		return last, nil
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: headersOnly})
	if err != nil {
		return last, err
	}
	it, err := consumer.Messages()
	if err != nil {
		return last, err
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return last, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return last, err
		}
		if err := f(msg, meta.Sequence.Stream); err != nil {
			return last, err
		}
		if meta.Sequence.Stream >= last || meta.NumPending == 0 {
			return last, nil
		}
	}
}

func (n *NATS) replay(ctx context.Context) (err error) {
	var pieces []step
	n.last, err = n.messages(ctx, n.journal, false, func(msg jetstream.Msg, seq uint64) error {
		var s step
		if err := json.Unmarshal(msg.Data(), &s); err != nil {
			return fmt.Errorf("message %d: %w", seq, err)
		}
		n.since++
		if s.Piece == 0 {
			n.apply(s)
			return nil
		}
		if s.Piece == 1 {
			pieces = nil
		}
		if pieces = append(pieces, s); s.Piece == s.Pieces && len(pieces) == s.Pieces {
			n.restore(pieces)
		}
		return nil
	})
	return err
}

// restore replaces everything by a complete snapshot.
func (n *NATS) restore(pieces []step) {
	n.index, n.batches, n.keys = map[uint64]kept{}, map[uint64]Batch{}, nil
	for _, p := range pieces {
		maps.Copy(n.index, p.Put)
		n.keys = append(n.keys, p.Keys...)
	}
	last := pieces[len(pieces)-1]
	for _, b := range last.Batches {
		n.batches[b.Number] = b
	}
	n.state, n.lastID, n.since = last.State, last.LastID, 0
}

// sweep deletes bodies that were published but never made it into the journal, or that ended when the server died.
func (n *NATS) sweep(ctx context.Context) error {
	wanted := map[uint64]bool{}
	for _, k := range n.index {
		wanted[k.Seq] = true
	}
	var orphans []uint64
	_, err := n.messages(ctx, n.bodies, true, func(_ jetstream.Msg, seq uint64) error {
		if !wanted[seq] {
			orphans = append(orphans, seq)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, seq := range orphans {
		err := n.retry(ctx, func(ctx context.Context) error { return n.bodies.DeleteMsg(ctx, seq) })
		if err != nil && !permanent(err) {
			return err
		}
	}
	return nil
}
