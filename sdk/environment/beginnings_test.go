package environment

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A block whose environment has never begun an episode ends when it has failed often enough, apart and with the same
// words: not before, as while a server warms up, and never after one has begun.
func TestAnEnvironmentThatBeginsNoEpisode(t *testing.T) {
	t.Parallel()
	closed := &InfraFailed{Err: errors.New("reset: the server has closed the connection")}
	other := &InfraFailed{Err: errors.New("reset: no answer")}
	for name, c := range map[string]struct {
		worked bool
		at     []time.Duration // of failures
		errs   []error         // closed where there is none
		ends   int             // with which failure; 0: it does not
	}{
		"apart":              {at: []time.Duration{40e9, 116e9, 195e9}, ends: 3},
		"all at once":        {at: []time.Duration{40e9, 41e9, 42e9, 43e9, 44e9}},
		"at once, and apart": {at: []time.Duration{40e9, 41e9, 90e9, 91e9, 150e9}, ends: 5},
		"other words":        {at: []time.Duration{40e9, 116e9, 195e9}, errs: []error{closed, other, closed}},
		"one has begun":      {worked: true, at: []time.Duration{40e9, 116e9, 195e9, 300e9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b beginnings
			if c.worked {
				b.begun()
			}
			ended := 0
			for i, after := range c.at {
				var err error = closed
				if i < len(c.errs) {
					err = c.errs[i]
				}
				if e := b.hopeless(err, 3, time.Time{}.Add(after)); e != nil && ended == 0 {
					ended = i + 1
					var infra *InfraFailed
					if !e.Final || !strings.Contains(e.Detail, "closed the connection") || errors.As(e, &infra) {
						t.Errorf("ended with %#v", e)
					}
				}
			}
			if ended != c.ends {
				t.Errorf("ended with failure %d, want %d", ended, c.ends)
			}
		})
	}
}
