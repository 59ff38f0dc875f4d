package store

import (
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
)

// waiting holds submissions that wait for room on a full disk, in the order of their arrival. Only the committer uses
// it.
type waiting struct {
	limit    time.Duration
	report   func(string) // gets why submissions wait; empty: none does any more
	reported bool
	all      []waiter
	tried    time.Time
	trial    *waiter // the one that is being tried again
}

// waiter is a submission and its deadline.
type waiter struct {
	submission
	until time.Time
	err   error
}

// wait keeps a submission for which there was no room, or refuses it after its deadline.
func (d *Disk) wait(s submission, err error) {
	w := &d.waiting
	now := time.Now()
	until := now.Add(w.limit)
	if w.trial != nil {
		until = w.trial.until
	}
	if !now.Before(until) {
		s.ticket.resolve(err)
		return
	}
	w.all = append(w.all, waiter{s, until, err})
	if !w.reported && w.report != nil {
		w.report(disk.Waiting(d.dir, err))
	}
	w.reported = true
	if len(w.all) == 1 && w.trial == nil {
		w.tried = now
		time.AfterFunc(disk.RetryEvery, d.poke)
	}
}

// retryWaiting tries waiting submissions again when disk.RetryEvery has passed.
func (d *Disk) retryWaiting() {
	w := &d.waiting
	if len(w.all) == 0 || time.Since(w.tried) < disk.RetryEvery*9/10 {
		return
	}
	w.tried = time.Now()
	all := w.all
	w.all = nil
	for i := range all { // one by one: there may be room for a small one
		w.trial = &all[i]
		d.commit([]submission{all[i].submission}) // it waits again when there is none
	}
	if w.trial = nil; len(w.all) > 0 {
		time.AfterFunc(disk.RetryEvery, d.poke)
	}
	d.settled()
}

// settled reports when nothing waits any more.
func (d *Disk) settled() {
	w := &d.waiting
	if w.trial != nil || !w.reported || len(w.all) > 0 {
		return
	}
	w.reported = false
	if w.report != nil {
		w.report("")
	}
}

// refuseWaiting refuses what still waits, because the store is closed.
func (d *Disk) refuseWaiting() {
	for _, p := range d.waiting.all {
		p.ticket.resolve(p.err)
	}
	d.waiting.all = nil
}
