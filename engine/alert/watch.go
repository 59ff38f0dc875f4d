package alert

import (
	"context"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/schema/decode"
)

// Options are what a watch needs.
type Options struct {
	Alerts []decode.Alert
	Events string // folder of the run's event log
	Run    string // name of the recipe
	RunID  string
	// Record writes an event into the run's log.
	Record func(event.Event)
	// Free returns the free bytes of the disk of the run.
	Free func() (uint64, error)
	// Secrets are kept out of what the run writes.
	Secrets func(...string)
}

// Watch follows a run.
type Watch struct {
	opts    Options
	rules   []*rule
	last    uint64               // number of the newest event taken
	sent    map[string]time.Time // by alert: the last delivery
	mu      sync.Mutex           // rules and sent
	ctx     context.Context      // of deliveries
	give    context.CancelFunc   // gives deliveries up
	leave   context.CancelFunc   // ends the following of the log and of the disk
	watch   sync.WaitGroup
	sending sync.WaitGroup
}

const (
	diskEvery = 10 * time.Second
	// endTimeout bounds the deliveries that are left when a run has ended.
	endTimeout = 45 * time.Second
)

// Start begins to watch. Events that the log has already update the state of alerts and send no notification. An
// alert that the engine before this one has recorded counts as delivered at its time: it is not repeated within its
// Every.
func Start(ctx context.Context, o Options) (*Watch, error) {
	w := &Watch{opts: o, sent: map[string]time.Time{}}
	w.ctx, w.give = context.WithCancel(context.WithoutCancel(ctx))
	following, leave := context.WithCancel(w.ctx)
	w.leave = leave
	for _, a := range o.Alerts {
		w.rules = append(w.rules, newRule(a))
		o.Secrets(a.Webhook)
	}
	if len(w.rules) == 0 {
		return w, nil
	}
	last, err := event.Last(o.Events)
	if err != nil {
		w.give()
		return nil, err
	}
	err = event.ReadLines(o.Events, 0, concerns(w.rules), func(e event.Event) error {
		w.last = e.Seq
		for _, r := range w.rules {
			r.take(e)
		}
		if e.Type == event.Alert {
			w.sent[e.Name] = e.Time
		}
		return ctx.Err()
	})
	if err != nil {
		w.give()
		return nil, err
	}
	w.last = max(w.last, last)
	w.watch.Go(func() {
		if err := event.Follow(following, o.Events, w.last, w.take); err != nil && following.Err() == nil {
			w.notice("the alerts of this run are not watched any more: " + err.Error())
		}
	})
	w.watch.Go(func() { w.disk(following) })
	return w, nil
}

// Stop takes what the log has to its end, and waits until that is delivered, for a limited time.
func (w *Watch) Stop() {
	defer w.give()
	w.leave()
	w.watch.Wait()
	if len(w.rules) > 0 {
		if err := event.Read(w.opts.Events, w.last, w.take); err != nil {
			w.notice("the end of this run was not watched by its alerts: " + err.Error())
		}
	}
	timer := time.AfterFunc(endTimeout, w.give)
	defer timer.Stop()
	w.sending.Wait()
}

// take folds one event into all alerts.
func (w *Watch) take(e event.Event) error {
	w.last = e.Seq
	for _, r := range w.rules {
		w.mu.Lock()
		c := r.take(e)
		absent := r.missing(e)
		w.mu.Unlock()
		w.tell(c, e.Time)
		if absent != "" {
			w.notice(absent)
		}
	}
	return nil
}

func (w *Watch) notice(message string) {
	w.opts.Record(event.Event{Type: event.Notice, Level: "warn", Message: message})
}

// disk looks at the free space of the disk until ctx ends.
func (w *Watch) disk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		if free, err := w.opts.Free(); err == nil {
			for _, r := range w.rules {
				if r.Disk > 0 {
					w.mu.Lock()
					c := r.free(free)
					w.mu.Unlock()
					w.tell(c, time.Now())
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell records a change, and delivers an alert that begins to hold, unless it was delivered a moment ago.
func (w *Watch) tell(c *change, at time.Time) {
	if c == nil {
		return
	}
	if c.over {
		w.mu.Lock()
		_, began := w.sent[c.rule.Name]
		w.mu.Unlock()
		if began { // a new alert may already have held in an earlier apply, without a message
			w.opts.Record(event.Event{Type: event.AlertOver, Name: c.rule.Name})
		}
		return
	}
	w.opts.Record(event.Event{Type: event.Alert, Name: c.rule.Name, Address: c.address, Step: c.step, Level: "warn",
		Message: c.message})
	w.mu.Lock()
	recent := time.Since(w.sent[c.rule.Name]) < c.rule.Every
	if !recent {
		w.sent[c.rule.Name] = time.Now()
	}
	w.mu.Unlock()
	if recent {
		return
	}
	m := Message{Version: 1, Alert: c.rule.Name, Run: w.opts.Run, RunID: w.opts.RunID, Address: c.address, Step: c.step,
		Time: at.UTC(), Message: c.message, Text: w.opts.Run + ": " + c.rule.Name + ": " + c.message}
	w.sending.Go(func() {
		if err := deliver(w.ctx, c.rule.Alert, m); err != nil {
			w.notice("alert " + c.rule.Name + ": " + err.Error())
		}
	})
}
