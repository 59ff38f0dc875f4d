package environment

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// Groups that end together are reported together: their tokens are those of the whole time in which they were made.
func TestTokensPerSecondCountSamplingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newRolloutStats()
		made := &rolled{sequences: []sequence{{sampled: 1000}}}
		rate := func() float64 {
			values, _ := tally.take()
			return values["tokens_per_second"]
		}
		time.Sleep(time.Minute) // nothing is made, which is not sampling
		for round := range 2 {
			first, second := tally.begin(), tally.begin()
			for range 4 {
				time.Sleep(2 * time.Second)
				if got := rate(); got != 0 {
					t.Fatalf("round %d: %g tokens a second before a group is done", round, got)
				}
			}
			time.Sleep(2 * time.Second)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			first()
			if got := rate(); got != 200 {
				t.Errorf("round %d: %g tokens a second, want 2000 in 10 s", round, got)
			}
			time.Sleep(5 * time.Second)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			second()
			time.Sleep(time.Hour)
			if got := rate(); got != 200 {
				t.Errorf("round %d: %g tokens a second of the second group, want 1000 in 5 s", round, got)
			}
		}
	})
}

// loggedHost keeps the lines of a log, and drops everything else.
type loggedHost struct {
	sdk.Host
	lines []string
}

func (h *loggedHost) Log(level, message string) { h.lines = append(h.lines, level+": "+message) }

func (h *loggedHost) Metrics(int64, map[string]float64) {}

// An environment all of whose tasks are too long trains nothing, and would say nothing.
func TestGroupsThatAreAllTooLongAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		long, sent int
		last, told bool
	}{
		"many":               {manyGroups, 0, false, true},
		"few, and more come": {manyGroups - 1, 0, false, false},
		"few, and no more":   {1, 0, true, true},
		"one fits":           {manyGroups, 1, true, false},
	} {
		host := &loggedHost{}
		r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
			rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), host: host,
			stats: newRolloutStats()}
		for range c.long {
			r.stats.tooLong(errors.New("too long, says the server"))
		}
		for range c.sent {
			r.stats.add(Task{Prompt: "a task"}, &rolled{sequences: []sequence{{sampled: 1}}}, true, false)
		}
		r.report(c.last)
		if told := strings.Contains(strings.Join(host.lines, " "), "each is too long"); told != c.told {
			t.Errorf("%s: the log is %q", name, host.lines)
		}
		r.report(c.last)
		if n := strings.Count(strings.Join(host.lines, " "), "too long, says the server"); n != 1 {
			t.Errorf("%s: what the server says is told %d times, want once: %q", name, n, host.lines)
		}
	}
}

// A reason with the data of its group in it is another one each time; it must not fill the log, nor the memory.
func TestReasonsThatAllDifferAreToldTogether(t *testing.T) {
	t.Parallel()
	host, lost := &loggedHost{}, lostGroups{}
	for i := range 1000 {
		lost.add(host, fmt.Errorf("KeyError: %d", i))
	}
	if most := maxReasons + 11; len(host.lines) > most || len(lost.same) > maxReasons+1 {
		t.Errorf("%d lines and %d reasons for 1000 groups, want %d at most", len(host.lines), len(lost.same), most)
	}
	if last := host.lines[len(host.lines)-1]; !strings.Contains(last, "groups for reasons other than the first 32") {
		t.Errorf("the last line is %q", last)
	}
}

// quoting is an exception whose text quotes the completion.
type quoting struct{ text, place string }

func (q quoting) Error() string { return q.text }
func (q quoting) Cause() string { return q.place }

// Exceptions of one type and place are one reason, whatever their texts quote, in the log and in the metrics.
func TestReasonsAreCountedByCause(t *testing.T) {
	t.Parallel()
	host, masked, lost, stats := &loggedHost{}, lostGroups{}, lostGroups{}, newRolloutStats()
	for i := range 500 {
		errs := []error{nil, nil, nil, quoting{fmt.Sprintf("no number in %d", i), "r.py:6 ValueError"},
			quoting{fmt.Sprintf("no number in -%d", i), "r.py:6 ValueError"}, &scoreTimedOut{completion: fmt.Sprint(i)}}
		why := together(errs, "completions")
		masked.addRollouts(host, why)
		lost.add(host, fmt.Errorf("score %d: %w", i, why))
		made := &rolled{sequences: make([]sequence, len(errs))}
		for j, err := range errs {
			made.sequences[j].failed = err
		}
		stats.add(Task{Prompt: "a task"}, made, true, false)
		stats.lost(why, 6)
	}
	// each when it has doubled: 1000 and 500 rollouts, 500 groups
	if len(host.lines) > 10+9+9 || len(masked.same) != 2 || len(lost.same) != 1 {
		t.Errorf("%d lines, %v, %v: %q", len(host.lines), masked.same, lost.same, host.lines)
	}
	values, _ := stats.take()
	for name, want := range map[string]float64{"rollouts": 6000, "rollouts_failed": 4500,
		"rollouts_failed/r.py:6 ValueError": 2000, "rollouts_failed/score_timeout": 1000,
		"rollouts_failed/too few scores in the group": 1500} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}

// Names of causes are few.
func TestManyCausesAreOthers(t *testing.T) {
	t.Parallel()
	var c causes
	for i := range 1000 {
		c.add(fmt.Sprint("cause ", i), 1)
	}
	if now := c.take(); len(now) != maxCauses+1 || now["other"] != 1000-maxCauses {
		t.Errorf("%v", now)
	}
}

// A block whose environment has refused each group with the same words is not started again.
func TestAnEnvironmentThatRefusesEveryGroup(t *testing.T) {
	t.Parallel()
	refuses := func(text string, answered bool) error {
		cause := &InfraFailed{Err: errors.New(text), Answered: answered}
		return &unscored{text: cause.Error(), causes: []error{cause}, counts: []int{2}}
	}
	for _, c := range []struct {
		name  string
		ever  bool // a group was posted before
		lost  []error
		final bool
	}{
		{"one answer", false, []error{refuses("no data", true), refuses("no data", true)}, true},
		{"another answer", false, []error{refuses("no task 1", true), refuses("no task 2", true)}, false},
		{"no answer", false, []error{refuses("connection refused", false), refuses("connection refused", false)}, false},
		{"after groups that were posted", true, []error{refuses("no data", true), refuses("no data", true)}, false},
	} {
		lost := lostGroups{ever: c.ever}
		for _, reason := range c.lost {
			lost.add(&loggedHost{}, reason)
		}
		var e *sdk.Error
		if err := lost.failure(c.lost[len(c.lost)-1]); !errors.As(err, &e) || e.Final != c.final {
			t.Errorf("%s: %v, final: %t", c.name, err, !c.final)
		}
	}
}

// scriptTimedOut is a score of an environment in Python that took too long.
type scriptTimedOut struct{}

func (scriptTimedOut) Error() string { return "not done after score_timeout" }
func (scriptTimedOut) Cause() string { return scoreTimeout }

// What to do about scores that take too long is the same, in whatever language they are.
func TestTheRemedyOfScoresThatTakeTooLong(t *testing.T) {
	t.Parallel()
	for _, late := range []error{scriptTimedOut{}, &scoreTimedOut{limit: time.Second}} {
		var e *sdk.Error
		err := (&lostGroups{inARow: 10}).failure(&unscored{text: "late", causes: []error{late}, counts: []int{2}})
		if !errors.As(err, &e) || !strings.Contains(e.Remedy, "raise score_timeout") {
			t.Errorf("%T: %v", late, err)
		}
	}
}

// An environment that fails slowly, in all that was ever tried, ends its block before ten groups are lost.
func TestAnEnvironmentThatNeverWorks(t *testing.T) {
	t.Parallel()
	closed := func(text string) error {
		cause := &InfraFailed{Err: errors.New(text)}
		return &unscored{text: cause.Error(), causes: []error{cause}, counts: []int{2}}
	}
	never := func() error {
		return &unscored{text: "late", causes: []error{scriptTimedOut{}}, counts: []int{2}}
	}
	began := time.Now()
	for _, c := range []struct {
		name  string
		ever  bool
		lost  []error
		after time.Duration
		ends  bool
	}{
		{"one reason for long", false, []error{closed("closed"), closed("closed")}, 2 * time.Minute, true},
		{"soon", false, []error{closed("closed"), closed("closed")}, 10 * time.Second, false},
		{"one group", false, []error{closed("closed")}, 2 * time.Minute, false},
		{"two reasons", false, []error{closed("closed"), closed("timed out")}, 2 * time.Minute, false},
		{"it has worked", true, []error{closed("closed"), closed("closed")}, 2 * time.Minute, false},
		{"scores that never end", false, []error{never(), never()}, 2 * time.Minute, true},
		{"scores that ended before", true, []error{never(), never()}, 2 * time.Minute, false},
		{"no failure of the environment", false, []error{&unscored{text: "a"}, &unscored{text: "a"}}, time.Hour, false},
	} {
		lost := lostGroups{ever: c.ever, began: began}
		for _, reason := range c.lost {
			lost.add(&loggedHost{}, reason)
		}
		if got := lost.hopeless(c.lost[len(c.lost)-1], began.Add(c.after)); got != c.ends {
			t.Errorf("%s: the block ends: %t", c.name, got)
		}
	}
}

// Groups without a difference are a warning once. Only a row that is much longer than the one of the last warning,
// after groups with different scores, is worth another.
func TestEqualScoresAreReportedOnce(t *testing.T) {
	t.Parallel()
	equal := &rolled{sequences: []sequence{{sampled: 1}, {sampled: 1}}}
	differ := &rolled{sequences: []sequence{{sampled: 1}, {sampled: 1, score: 1}}}
	const row, long = manyGroups, moreRow * manyGroups
	for name, c := range map[string]struct {
		rows    []int // lengths of rows of groups with equal scores
		between int   // groups with different scores between two of them
		want    int
	}{
		"a short row":                       {[]int{row - 1}, 0, 0},
		"one row":                           {[]int{row}, 0, 1},
		"the same row":                      {[]int{row, 20 * long}, 0, 1},
		"one that differs":                  {[]int{row, row, long}, 1, 1},
		"nearly enough differ":              {[]int{row, long}, row - 1, 1},
		"as long, after many that differ":   {[]int{row, row, row, row, row, row}, 3 * row, 1},
		"longer, and not long":              {[]int{row, long - 1, long - 1}, 3 * row, 1},
		"ten times as long":                 {[]int{row, long}, row, 2},
		"as long as the second":             {[]int{row, long, long, long}, row, 2},
		"again ten times as long":           {[]int{row, long, moreRow * long}, row, 3},
		"solved after a hard start":         {[]int{row + 3, 2 * long}, 5 * long, 2},
		"half of all groups, for very long": {slices.Repeat([]int{row}, 200), row, 1},
	} {
		host := &loggedHost{}
		r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
			rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), host: host,
			stats: newRolloutStats()}
		add := func(group *rolled, times int) {
			for i := range times {
				r.stats.add(Task{Prompt: "a task"}, group, true, false)
				if i%manyGroups == manyGroups-1 {
					r.report(true)
				}
			}
			r.report(true)
		}
		for _, length := range c.rows {
			add(equal, length)
			add(differ, c.between)
		}
		if got := strings.Count(strings.Join(host.lines, "\n"), "all scores were equal"); got != c.want {
			t.Errorf("%s: reported %d times, want %d: %q", name, got, c.want, host.lines)
		}
	}
}

// Groups that are all too long are a warning once, until one is not.
func TestTooLongGroupsAreReportedOnce(t *testing.T) {
	t.Parallel()
	host := &loggedHost{}
	r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
		rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), host: host,
		stats: newRolloutStats()}
	group := &rolled{sequences: []sequence{{sampled: 1}, {sampled: 1, score: 1}}}
	for _, long := range []bool{true, true, true, false, true, true} {
		for range manyGroups {
			r.stats.add(Task{Prompt: "a task"}, group, !long, long)
		}
		r.report(true)
	}
	if got := strings.Count(strings.Join(host.lines, "\n"), "every group was left out"); got != 2 {
		t.Errorf("reported %d times, want 2: %q", got, host.lines)
	}
}
