package executor

import (
	"testing"
	"time"
)

func TestKeysAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, k := range []Key{
		{"01J", "trainer.tiny.policy", 1},
		{"01J", `module.a["x/y"].environment.arithmetic.sums["it's 1/2"]`, 12},
	} {
		if got, err := ParseKey(k.String()); got != k || err != nil {
			t.Errorf("ParseKey(%q) = %+v, %v", k.String(), got, err)
		}
	}
	for _, bad := range []string{"", "a", "a/b", "/b/1", "a//1", "a/b/", "a/b/x", "a/b/1x", "a/b/01"} {
		if k, err := ParseKey(bad); err == nil {
			t.Errorf("ParseKey(%q) = %+v; expected an error", bad, k)
		}
	}
}

func TestStatusIsReadable(t *testing.T) {
	t.Parallel()
	one := 1
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, s := range map[string]Status{
		"running": {State: Running},
		"pending: Priority, number 4 in the queue, expected to start at 2026-01-02 03:04": {State: Pending,
			Reason: "Priority", Place: 4, Expected: at},
		"failed: on n1, exit status 1": {State: Failed, Node: "n1", ExitCode: &one},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, expected %q", got, want)
		}
	}
}

func TestNoticeBeforeATimeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ grace, limit, want time.Duration }{
		{0, 0, time.Minute},
		{30 * time.Second, 12 * time.Hour, time.Minute},
		{5 * time.Minute, 0, 330 * time.Second},
		{5 * time.Minute, 12 * time.Hour, 330 * time.Second},
		{5 * time.Minute, 30 * time.Minute, 3 * time.Minute},
		{5 * time.Minute, 5 * time.Minute, time.Minute},
		{time.Second, 0, time.Minute},
	} {
		if got := (Resources{Grace: c.grace, TimeLimit: c.limit}).Notice(); got != c.want {
			t.Errorf("notice with a grace of %s and a limit of %s: %s, want %s", c.grace, c.limit, got, c.want)
		}
	}
}
