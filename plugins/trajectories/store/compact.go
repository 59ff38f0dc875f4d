package store

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// A group that never finds its batch would keep the whole file in which it lies. So after a checkpoint the groups of
// files that hold little else are written once more, to the end of the log, and the files go. Until the index has
// taken the new places in, both copies are there: a crash before the new frame is complete leaves the old one valid,
// a crash after it is a frame that recovery replays. Nothing is lost in between, and a group has one place at any
// time, so nothing comes twice.

const (
	// sparse: a file is moved when at most one part in sparse of it is still needed. What is moved is then at most a third
	// of what is freed, and files take at most sparse times the space of the groups in them.
	sparse = 4
	// moveBudget bounds what posts wait for: the bytes that one checkpoint moves, except that one file always goes.
	moveBudget = 16 << 20
	// moveFrame is the size of one frame of moved groups: what is in memory at once.
	moveFrame = 4 << 20
	// manyFiles is how many files there may be before small ones, which restarts leave behind, are put together.
	manyFiles = 32
)

// compact frees files that hold little. It must follow a checkpoint: the index must know every group.
func (d *Disk) compact() error {
	defer d.bodies.look()
	moved := int64(0)
	for {
		s := d.bodies.sparsest()
		if s == nil || moved > 0 && moved+s.bytes > moveBudget {
			break
		}
		moved += max(s.bytes, 1)
		s.tried = true // it goes at the checkpoint that follows, or stays
		// Reading the damaged group will report it; the rest of its file stays with it.
		if err := d.forward(s); err != nil && !errors.Is(err, ErrCorrupt) {
			s.tried = false // tried again once there is room
			return err
		}
	}
	if moved == 0 {
		return nil
	}
	return d.checkpoint()
}

// look records what is in the files, for the next time: a file in which no group ends in between is not being drained.
func (b *bodies) look() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.segments {
		s.before = s.bytes
	}
}

// sparsest is the file whose groups cost the least to move among those that are worth it, or nil.
func (b *bodies) sparsest() *segment {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var best *segment
	for _, s := range b.segments {
		small := len(b.segments) > manyFiles && s.size < b.limit/manyFiles
		draining := s.bytes != s.before // the rest of it will end soon without a move
		if s == b.current || s.live == 0 || s.tried || draining || s.bytes*sparse > s.size && !small {
			continue
		}
		if best == nil || s.bytes < best.bytes || s.bytes == best.bytes && s.number < best.number {
			best = s
		}
	}
	return best
}

// found is a group that is still needed.
type found struct {
	id    uint64
	meta  Meta
	place place
}

// forward appends the groups of a file to the log, and makes their new places known.
func (d *Disk) forward(s *segment) error {
	all, err := d.needed(s)
	if err != nil {
		return err
	}
	if len(all) < s.live {
		return nil // some are in frames that cannot be read any more: the file must stay
	}
	for len(all) > 0 {
		r := &record{}
		var bodies [][]byte
		for size := int64(0); len(all) > 0 && (size == 0 || size+all[0].place.Length <= moveFrame); all = all[1:] {
			body, err := d.bodies.read(all[0].place, nil)
			if err != nil {
				return err
			}
			r.Put = append(r.Put, putRecord{ID: all[0].id, Meta: all[0].meta, Moved: true})
			bodies = append(bodies, body)
			size += all[0].place.Length
		}
		if err := d.bodies.room(); err != nil {
			return full(err)
		}
		if err := d.bodies.current.write(r, bodies); err != nil {
			return full(err)
		}
		if err := d.force(); err != nil {
			return err
		}
		d.apply(r)
	}
	return nil
}

// needed lists the groups of a file that the index places there.
func (d *Disk) needed(s *segment) (all []found, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		groups := tx.Bucket(bucketGroups)
		_, err := s.frames(int64(headSize), false, func(r *record) error {
			for i := range r.Put {
				text := groups.Get(key(r.Put[i].ID))
				if text == nil {
					continue
				}
				p, m, err := decode(text)
				if err != nil {
					return err
				}
				if p == r.Put[i].place {
					all = append(all, found{r.Put[i].ID, m, p})
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the groups that a file of the log still holds: %w", err)
	}
	return all, nil
}
