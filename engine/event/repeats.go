package event

import (
	"sort"
	"strings"
	"time"
)

// Bounds of repeated events.
const (
	repeatWindow = time.Minute
	repeatFirst  = 20 // of one kind in a window are written as they come
	sampleFirst  = 1  // likewise of samples, which are long
	sweepEvery   = time.Second
)

// repeats counts repeated events: log lines and notices that differ in numbers only, a phase reported again with
// another number, and samples. The first ones in a minute are written as they come; of the others the newest is
// written when the minute is over, with the number of those before it. So a line at every step, or a warning at every
// request, does not fill the disk.
type repeats struct {
	kinds map[string]*repeated
	swept time.Time
}

type repeated struct {
	phase  string // what a block's phases have in common so far
	began  time.Time
	first  int // that are written as they come
	seen   int
	newest *Event // not written yet
	count  int    // of those not written, newest included
}

// take reports whether e was counted and must not be written now, and which counted events must be written before it.
func (r *repeats) take(e Event) (due []Event, counted bool) {
	due = r.due(e.Time)
	key, first := keyOf(e)
	if key == "" {
		return due, false
	}
	x := r.kinds[key]
	phase := e.Phase + "\x00" + WithoutNumbers(e.Message)
	if x != nil && e.Type == Phase && x.phase != phase {
		// The phase has changed: the counted event of the phase before comes first.
		if x.newest != nil {
			due = append(due, x.flush())
		}
		x = nil
	}
	if x == nil {
		x = &repeated{phase: phase, began: e.Time, first: first}
		r.kinds[key] = x
	}
	if x.seen++; x.seen <= x.first {
		return due, false
	}
	x.newest = &e
	x.count++
	return due, true
}

// due ends the windows that are over. Events that were repeated in one continue to be counted in the next.
func (r *repeats) due(now time.Time) (out []Event) {
	if since := now.Sub(r.swept); since < sweepEvery && since > -sweepEvery {
		return nil
	}
	r.swept = now
	for key, x := range r.kinds {
		// A clock that was set back must not hold an event for hours.
		if age := now.Sub(x.began); age < repeatWindow && age > -repeatWindow {
			continue
		}
		if x.newest == nil {
			delete(r.kinds, key)
			continue
		}
		out = append(out, x.flush())
		x.began, x.seen = now, x.first
	}
	sortByTime(out)
	return out
}

// all ends every window.
func (r *repeats) all() (out []Event) {
	for key, x := range r.kinds {
		if x.newest != nil {
			out = append(out, x.flush())
		}
		delete(r.kinds, key)
	}
	sortByTime(out)
	return out
}

func (x *repeated) flush() Event {
	e := *x.newest
	e.Repeats = x.count - 1
	x.newest, x.count = nil, 0
	return e
}

func sortByTime(list []Event) {
	sort.Slice(list, func(i, j int) bool { return list[i].Time.Before(list[j].Time) })
}

// keyOf is the key that repeated events share, and how many of them are written a minute; "" for events that are never
// counted.
func keyOf(e Event) (key string, first int) {
	switch e.Type {
	case LogLine, Notice:
		return strings.Join([]string{string(e.Type), e.Address, e.Level, WithoutNumbers(e.Message)}, "\x00"),
			repeatFirst
	case Phase:
		return string(e.Type) + "\x00" + e.Address, repeatFirst
	case Sample:
		return strings.Join([]string{string(e.Type), e.Address, e.Environment}, "\x00"), sampleFirst
	default:
		return "", 0
	}
}

// WithoutNumbers replaces every run of digits by one #.
func WithoutNumbers(s string) string {
	if !strings.ContainsAny(s, "0123456789") {
		return s
	}
	var b strings.Builder
	in := false
	for i := range len(s) {
		digit := s[i] >= '0' && s[i] <= '9'
		switch {
		case digit && !in:
			b.WriteByte('#')
		case !digit:
			b.WriteByte(s[i])
		}
		in = digit
	}
	return b.String()
}
