package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/recipe-rl/recipe/internal/regular"
)

// The log is authoritative; the index holds the state of the log up to a position that it stores itself. Bringing it up
// to date costs two forced writes, so it happens when a log file is full, after many groups, and at the end.

// keyPosition is the index's position in the log: the number of a file and an offset in it.
var keyPosition = []byte("position")

// checkpoint brings the changes since the last one into the index, then deletes files that are not needed any more.
// When it fails nothing is lost, and it is tried again.
func (d *Disk) checkpoint() error {
	if len(d.recent) == 0 {
		d.bodies.tidy()
		return nil
	}
	gone, err := d.index(d.recent)
	for errors.Is(err, ErrFull) && (d.bodies.discard() || d.useReserve()) {
		gone, err = d.index(d.recent)
	}
	if err != nil {
		return fmt.Errorf("bringing the index of the trajectory store %s up to date: %w", d.dir, err)
	}
	d.recent, d.groups = nil, 0
	d.freshMu.Lock()
	clear(d.fresh)
	d.freshMu.Unlock()
	for _, p := range gone {
		d.bodies.use(p, -1)
	}
	d.bodies.tidy()
	return nil
}

// index writes one transaction and returns where the bodies lay that nothing refers to any more. A group that was put
// and ended since the last time never gets into the index.
func (d *Disk) index(work []*record) (gone []place, err error) {
	over := map[uint64]bool{}
	for _, r := range work {
		for _, c := range r.Changes {
			for _, id := range c.End {
				over[id] = true
			}
		}
	}
	err = d.db.Update(func(tx *bolt.Tx) error {
		gone = gone[:0]
		groups, batches, state, keys := tx.Bucket(
			bucketGroups,
		), tx.Bucket(
			bucketBatches,
		), tx.Bucket(
			bucketState,
		), tx.Bucket(
			bucketKeys,
		)
		groups.FillPercent = 0.9 // ids only grow
		last := uint64(0)
		if old := state.Get(keyLast); len(old) == 8 {
			last = binary.BigEndian.Uint64(old)
		}
		for _, r := range work {
			for _, p := range r.Put {
				last = max(last, p.ID)
				old := before(groups, p)
				if over[p.ID] || p.Moved && old == nil {
					gone = append(gone, p.place)
					continue
				}
				if old != nil {
					gone = append(gone, *old)
				}
				if err := groups.Put(key(p.ID), p.place.encode(p.Meta)); err != nil {
					return err
				}
			}
			for i := range r.Changes {
				ended, err := change(&r.Changes[i], groups, batches, state)
				if err != nil {
					return err
				}
				gone = append(gone, ended...)
				if err := addKeys(keys, r.Changes[i].Keys); err != nil {
					return err
				}
				for _, place := range r.Changes[i].Place {
					last = max(last, place)
				}
			}
		}
		number, size := d.bodies.end()
		if err := state.Put(keyPosition, append(key(uint64(number)), key(uint64(size))...)); err != nil {
			return err
		}
		return state.Put(keyLast, key(last))
	})
	return gone, full(err)
}

// before is the earlier place of a moved group; nil for a new one.
func before(groups *bolt.Bucket, p putRecord) *place {
	if !p.Moved {
		return nil
	}
	old, _, err := decode(groups.Get(key(p.ID)))
	if err != nil {
		return nil
	}
	return &old
}

// change writes everything of a change but its puts and its keys.
func change(c *journalled, groups, batches, state *bolt.Bucket) (gone []place, err error) {
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

// recover reads the log after the index's position.
func (d *Disk) recover() error {
	number, offset := uint32(0), int64(0)
	err := d.db.View(func(tx *bolt.Tx) error {
		state := tx.Bucket(bucketState)
		if v := state.Get(keyPosition); len(v) == 16 {
			number, offset = uint32(
				binary.BigEndian.Uint64(v),
			), int64(
				binary.BigEndian.Uint64(v[8:]),
			)
		}
		return tx.Bucket(bucketGroups).ForEach(func(_, v []byte) error {
			p, _, err := decode(v)
			if err == nil {
				d.bodies.use(p, 1)
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("reading the index of the trajectory store %s: %w", d.dir, err)
	}
	d.bodies.after(number, offset)
	var files []*segment
	for _, s := range d.bodies.segments {
		if s.number >= number {
			files = append(files, s)
		}
	}
	slices.SortFunc(files, func(a, b *segment) int { return int(a.number) - int(b.number) })
	for _, s := range files {
		from := int64(headSize)
		if s.number == number {
			from = offset
		}
		if _, err := s.replay(from, func(r *record) error { d.apply(r); return nil }); err != nil {
			return err
		}
	}
	if err := d.checkpoint(); err != nil {
		return err
	}
	d.bodies.idle = true
	d.bodies.tidy()
	d.bodies.look()
	d.sparse = d.bodies.sparsest() != nil // moving now would delay the opening of the store
	return nil
}

// The reserve is a file whose only purpose is to be deleted when the disk is full, so that batches can still be
// acknowledged, which is what frees space.

const reserveSize = 8 << 20

func (d *Disk) reserveName() string { return filepath.Join(d.dir, "reserve") }

// reserve creates the file. Without room for it the store still works.
func (d *Disk) reserve() {
	if info, err := os.Stat(d.reserveName()); err == nil && info.Size() >= reserveSize {
		return
	}
	if err := regular.WriteFile(d.reserveName(), make([]byte, reserveSize)); err != nil {
		_ = os.Remove(d.reserveName())
	}
}

func (d *Disk) useReserve() bool { return os.Remove(d.reserveName()) == nil }
