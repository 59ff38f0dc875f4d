package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// maxCommit bounds what one commit takes, so that the first of many posts does not wait for all of them.
const maxCommit = 256

// errClosed is what a submission to a closed store gets.
var errClosed = errors.New("the trajectory store is closed")

// Submit queues a change for the next commit.
func (d *Disk) Submit(c Change) *Ticket {
	t := newTicket()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		t.resolve(errClosed)
		return t
	}
	d.pending = append(d.pending, submission{c, t})
	d.mu.Unlock()
	d.poke()
	return t
}

func (d *Disk) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// commits is the only writer. While it forces one commit to the disk, the next one gathers.
func (d *Disk) commits() {
	defer close(d.done)
	for range d.wake {
		for {
			d.mu.Lock()
			n := min(len(d.pending), maxCommit)
			work := d.pending[:n:n]
			d.pending = d.pending[n:]
			closed := d.closed
			d.mu.Unlock()
			if n == 0 {
				if closed {
					return
				}
				break
			}
			d.commit(work)
		}
	}
}

// written is a put whose body is in its file.
type written struct {
	entry *Entry
	place place
}

// commit makes a number of submissions durable together. When there is no room for bodies, what ends groups still
// goes through: that is how room is made.
func (d *Disk) commit(work []submission) {
	if d.broken != nil {
		settle(work, d.broken)
		return
	}
	puts := map[*Ticket][]written{}
	defer d.bodies.tidy()
	touched := map[uint32]bool{}
	kept := work[:0:0]
	for _, w := range work {
		placed, err := d.write(w.change.Put, touched)
		if err != nil {
			w.ticket.resolve(full(err))
			continue
		}
		puts[w.ticket] = placed
		kept = append(kept, w)
	}
	if d.always {
		if err := d.bodies.sync(touched); err != nil {
			// After a failed sync the kernel may have forgotten which pages were dirty: trying again would lie.
			d.broken = fmt.Errorf("%w; the trajectory store stays closed until the server is restarted on a sound disk", err)
			settle(kept, d.broken)
			return
		}
	}
	gone, err := d.index(kept, puts)
	if errors.Is(err, ErrFull) && d.useReserve() {
		gone, err = d.index(kept, puts)
	}
	if err != nil {
		settle(kept, fmt.Errorf("writing the index of the trajectory store %s: %w", d.dir, err))
		return
	}
	for _, p := range gone {
		d.bodies.use(p.Segment, -1)
	}
	settle(kept, nil)
}

func settle(work []submission, err error) {
	for _, w := range work {
		w.ticket.resolve(err)
	}
}

// write appends the bodies of one change.
func (d *Disk) write(put []Entry, touched map[uint32]bool) ([]written, error) {
	placed := make([]written, len(put))
	for i := range put {
		p, err := d.bodies.append(put[i].Body)
		if err != nil {
			return nil, err
		}
		touched[p.Segment] = true
		placed[i] = written{&put[i], p}
	}
	return placed, nil
}

// index writes one transaction and returns where the bodies lay that nothing refers to any more.
func (d *Disk) index(work []submission, puts map[*Ticket][]written) (gone []place, err error) {
	err = d.db.Update(func(tx *bolt.Tx) error {
		gone = gone[:0]
		groups, batches, state := tx.Bucket(bucketGroups), tx.Bucket(bucketBatches), tx.Bucket(bucketState)
		groups.FillPercent = 0.9 // ids only grow
		last := uint64(0)
		for _, w := range work {
			for _, p := range puts[w.ticket] {
				if err := groups.Put(key(p.entry.ID), p.place.encode(p.entry.Meta)); err != nil {
					return err
				}
				last = max(last, p.entry.ID)
			}
			ended, err := change(w.change, groups, batches, state)
			if err != nil {
				return err
			}
			gone = append(gone, ended...)
			for _, place := range w.change.Place {
				last = max(last, place)
			}
		}
		if old := state.Get(keyLast); last > 0 && (len(old) != 8 || binary.BigEndian.Uint64(old) < last) {
			return state.Put(keyLast, key(last))
		}
		return nil
	})
	if err != nil {
		return nil, full(err)
	}
	for _, placed := range puts {
		for _, p := range placed {
			d.bodies.use(p.place.Segment, 1)
		}
	}
	return gone, nil
}

// change writes everything of a change but its puts.
func change(c Change, groups, batches, state *bolt.Bucket) (gone []place, err error) {
	for id, to := range c.Place {
		text := groups.Get(key(id))
		if text == nil {
			continue
		}
		p, m, err := decode(text)
		if err != nil {
			return nil, err
		}
		m.Place = to
		if err := groups.Put(key(id), p.encode(m)); err != nil {
			return nil, err
		}
	}
	for _, b := range c.Batches {
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		if err := batches.Put(key(b.Number), text); err != nil {
			return nil, err
		}
	}
	for _, id := range c.End {
		text := groups.Get(key(id))
		if text == nil {
			continue
		}
		p, _, err := decode(text)
		if err != nil {
			return nil, err
		}
		gone = append(gone, p)
		if err := groups.Delete(key(id)); err != nil {
			return nil, err
		}
	}
	for _, number := range c.Ended {
		if err := batches.Delete(key(number)); err != nil {
			return nil, err
		}
	}
	if c.State != nil {
		return gone, state.Put(keyState, c.State)
	}
	return gone, nil
}

// The reserve is a file whose only purpose is to be deleted when the disk is full, so that batches can still be
// acknowledged, which is what frees space.

const reserveSize = 4 << 20

func (d *Disk) reserveName() string { return filepath.Join(d.dir, "reserve") }

// reserve creates the file. Without room for it the store works all the same.
func (d *Disk) reserve() {
	if info, err := os.Stat(d.reserveName()); err == nil && info.Size() >= reserveSize {
		return
	}
	if err := os.WriteFile(d.reserveName(), make([]byte, reserveSize), 0o600); err != nil {
		_ = os.Remove(d.reserveName())
	}
}

func (d *Disk) useReserve() bool { return os.Remove(d.reserveName()) == nil }
