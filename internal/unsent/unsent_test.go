package unsent

import (
	"strings"
	"testing"
	"time"
)

// What happens now is reported before what happened until then.
func TestWhatIsReported(t *testing.T) {
	t.Parallel()
	made := func(n int, every time.Duration, why string) (list []group) {
		for range n {
			list = append(list, group{every, why})
		}
		return list
	}
	for name, c := range map[string]struct {
		groups []group
		since  time.Duration // after the last group
		want   string        // in the detail; "": other work is reported
	}{
		"too few":                 {groups: made(enough-1, time.Second, FlatScores)},
		"groups come":             {made(enough, time.Second, FlatScores), 5 * time.Second, "its scores are all equal"},
		"groups have ceased":      {groups: made(enough, time.Second, FlatScores), since: 11 * time.Second},
		"slow groups come":        {made(enough, time.Minute, LongPrompt), time.Minute, "longer than the model's context"},
		"slow groups have ceased": {groups: made(enough, time.Minute, LongPrompt), since: 3 * time.Minute},
		"one was sent":            {groups: append(made(enough, time.Second, FlatScores), group{time.Second, ""})},
		"one was sent before":     {append([]group{{time.Second, ""}}, made(enough, 0, NoScores)...), 0, "have a score"},
		"for more than one reason": {append(made(enough, 0, NoScores), group{0, FlatScores}), 0,
			"for several reasons; the last: its"},
		"a pause before one is old": {groups: append([]group{{0, FlatScores}, {time.Hour, ""}},
			made(enough, 0, FlatScores)...), since: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r Row
			now := time.Now()
			for _, g := range c.groups {
				now = now.Add(g.after)
				r.Add(g.why, now)
			}
			a, ok := r.Activity(now.Add(c.since))
			if ok != (c.want != "") || !strings.Contains(a.Detail, c.want) || ok && a.Remedy == "" {
				t.Errorf("%+v (%v), want %q", a, ok, c.want)
			}
		})
	}
}

// group comes so long after the one before it.
type group struct {
	after time.Duration
	why   string
}
