package store

import (
	"errors"
	"fmt"
	"time"
)

const (
	// maxCommit bounds what one commit takes, so that the first of many posts does not wait for all of them.
	maxCommit = 256
	// checkpointGroups bounds what a checkpoint has to write, and what a crash leaves to be read again.
	checkpointGroups = 2000
)

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
	d.reserve() // not before: it takes longer than the rest of opening
	for range d.wake {
		d.retryWaiting()
		for {
			d.gather()
			d.mu.Lock()
			n := min(len(d.pending), maxCommit)
			work := d.pending[:n:n]
			d.pending = d.pending[n:]
			closed := d.closed
			d.mu.Unlock()
			if n == 0 {
				if closed {
					d.refuseWaiting()
					return
				}
				break
			}
			d.companions = n
			d.commit(work)
		}
	}
}

// gatherFor is how long a commit waits for more, when the one before had more: a forced write costs much more than
// that, and those who shared the last one are usually about to post again.
const gatherFor = 200 * time.Microsecond

func (d *Disk) gather() {
	d.mu.Lock()
	alone := d.companions > 1 && len(d.pending) > 0 && len(d.pending) < d.companions && !d.closed
	d.mu.Unlock()
	if alone && d.always {
		time.Sleep(gatherFor)
	}
}

// commit makes a number of submissions durable together. When there is no room, files that are kept to be written again
// go first. When there is none for groups then, what ends groups still goes through: that is how room is made.
func (d *Disk) commit(work []submission) {
	if d.broken != nil {
		settle(work, d.broken)
		return
	}
	err := d.persist(work)
	if errors.Is(err, ErrFull) && d.bodies.discard() {
		err = d.persist(work)
	}
	if errors.Is(err, ErrFull) {
		var rest []submission
		for _, w := range work {
			if len(w.change.Put) > 0 {
				d.wait(w, err)
			} else {
				rest = append(rest, w)
			}
		}
		if work = rest; len(work) == 0 {
			return
		}
		if err = d.persist(work); errors.Is(err, ErrFull) && d.useReserve() {
			err = d.persist(work)
		}
	}
	if err != nil {
		settle(work, err)
		return
	}
	d.apply(d.appended)
	settle(work, nil)
	d.settled()
	if d.bodies.full() || d.groups >= d.every || d.sparse {
		d.sparse = false
		// A failure is no loss: the log has everything. The next commit tries again.
		if d.checkpoint() == nil {
			_ = d.bodies.room() // otherwise append does it, and reports an error
			_ = d.compact()
		}
	}
}

// persist writes a frame with all changes and makes it durable. On ErrFull it is removed completely.
func (d *Disk) persist(work []submission) error {
	if err := d.append(work); err != nil {
		return err
	}
	return d.force()
}

// force makes what was appended durable. On ErrFull the frame is gone, and it can be tried again once there is room.
func (d *Disk) force() error {
	if !d.always {
		return nil
	}
	err := d.sync(d.bodies.current.file)
	if err == nil {
		d.bodies.current.forced = d.bodies.current.size
		return nil
	}
	// After a failed sync the kernel may have dropped the dirty pages: a second sync could succeed without writing them.
	// Some file systems find out only now that there is no room for what they accepted. Then all that was not forced
	// before is cut off, and the log continues in a new file; the frame was not acknowledged.
	if f := full(err); errors.Is(f, ErrFull) {
		undo := d.bodies.abandon(d.sync)
		if undo == nil {
			return f
		}
		err = errors.Join(err, undo)
	}
	d.broken = fmt.Errorf(
		"forcing trajectories to the disk: %w; the store takes nothing more: check the disk, then restart the server",
		err,
	)
	return d.broken
}

func settle(work []submission, err error) {
	for _, w := range work {
		w.ticket.resolve(err)
	}
}

// append writes a frame with all changes.
func (d *Disk) append(work []submission) error {
	if err := d.bodies.room(); err != nil {
		return full(err)
	}
	r := &record{}
	var bodies [][]byte
	for _, w := range work {
		c := &w.change
		for i := range c.Put {
			r.Put = append(r.Put, putRecord{ID: c.Put[i].ID, Meta: c.Put[i].Meta})
			bodies = append(bodies, c.Put[i].Body)
		}
		if j := journal(c); !j.empty() {
			r.Changes = append(r.Changes, j)
		}
	}
	d.appended = r
	return full(d.bodies.current.write(r, bodies))
}

// apply makes a record part of what the store knows.
func (d *Disk) apply(r *record) {
	d.recent = append(d.recent, r)
	d.groups += len(r.Put)
	d.freshMu.Lock()
	defer d.freshMu.Unlock()
	for _, p := range r.Put {
		d.fresh[p.ID] = p.place
		d.bodies.use(p.place, 1)
	}
	for _, c := range r.Changes {
		for _, id := range c.End {
			d.fresh[id] = place{} // ended: hides the entry of the index
		}
	}
}
