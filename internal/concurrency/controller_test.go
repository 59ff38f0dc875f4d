package concurrency

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"
)

// engine simulates a server in the manner of vLLM: a step computes one token of each running sequence, a sequence is
// begun when its prompt fits into the cache, and the youngest loses its place when nothing is free.
type engine struct {
	capacity    int           // of the cache, in tokens
	answers     time.Duration // how often sequences that are done become known, and others are sent
	reserves    int           // tokens of an answer for which it keeps room, in the manner of SGLang; 0: none
	now         time.Duration
	waiting     []*sequence
	running     []*sequence
	used        int // tokens in the cache
	preemptions int
	tokens      int // of answers, each counted once
	finished    int
}

type sequence struct {
	prompt, length int // tokens
	done           int // tokens of the answer that are in the cache
	counted        int
	sent           time.Duration
}

// step takes a time that depends on the batch, with constants of the order of a small model on one GPU.
func (e *engine) step() {
	prefill := 0
	for len(e.waiting) > 0 && prefill < 8192 {
		s := e.waiting[0]
		if e.used+s.prompt+s.done+1+e.kept() > e.capacity {
			break
		}
		e.waiting, e.running = e.waiting[1:], append(e.running, s)
		e.used += s.prompt + s.done
		prefill += s.prompt + s.done
	}
	for e.used+len(e.running) > e.capacity {
		last := e.running[len(e.running)-1]
		e.running = e.running[:len(e.running)-1]
		e.used -= last.prompt + last.done
		e.waiting = append([]*sequence{last}, e.waiting...)
		e.preemptions++
	}
	e.now += 6*time.Millisecond + time.Duration(len(e.running))*20*time.Microsecond +
		time.Duration(e.used)*15*time.Nanosecond + time.Duration(prefill)*20*time.Microsecond
	left := e.running[:0]
	for _, s := range e.running {
		s.done++
		e.used++
		if s.done > s.counted {
			s.counted = s.done
			e.tokens++
		}
		if s.done < s.length {
			left = append(left, s)
			continue
		}
		e.used -= s.prompt + s.done
		e.finished++
	}
	e.running = left
}

// kept are tokens that running sequences and one more are expected to add.
func (e *engine) kept() int {
	tokens := e.reserves
	for _, s := range e.running {
		tokens += max(0, e.reserves-s.done)
	}
	return tokens
}

func (e *engine) usage() Usage {
	return Usage{Cache: float64(e.used) / float64(e.capacity), Capacity: float64(e.capacity), Running: len(e.running),
		Queued: len(e.waiting), Preemptions: float64(e.preemptions), Reserves: e.reserves > 0}
}

func (e *engine) work(waiting bool, longest int) Work {
	w := Work{InFlight: len(e.running) + len(e.waiting), Waiting: waiting, Finished: e.finished, Longest: float64(longest)}
	for _, list := range [][]*sequence{e.waiting, e.running} {
		for _, s := range list {
			w.Age += (e.now - s.sent) / time.Duration(w.InFlight)
		}
	}
	return w
}

// shape is a kind of work. Lengths are uniform within their bounds.
type shape struct {
	prompt, answer [2]int
	long           [2]int // answers of each tenth sequence; zero: like the others
	longest        int    // tokens of a sequence at most, as the requests have it
}

func (s shape) sequence(r *rand.Rand, now time.Duration) *sequence {
	within := func(b [2]int) int { return b[0] + r.IntN(b[1]-b[0]) }
	q := &sequence{prompt: within(s.prompt), length: within(s.answer), sent: now}
	if s.long[1] > 0 && r.IntN(10) == 0 {
		q.length = within(s.long)
	}
	return q
}

const batch = 2048 // sequences that a trainer needs for a step

// stretch is a part of a run.
type stretch struct{ from, to time.Duration }

// settled leaves out the first two minutes.
var settled = stretch{2 * time.Minute, 12 * time.Minute}

// run gives an engine work and returns tokens a second, and preemptions for each finished sequence, in a stretch of the
// run. With steps all of a batch is done before the next one begins. No fixed limit: the controller's.
func run(e engine, s shape, fixed int, steps bool, within stretch) (rate, preempted float64) {
	r := rand.New(rand.NewPCG(1, 2))
	c := New()
	var before *engine
	left, looked, sent := batch, time.Duration(0), time.Duration(0)
	for e.now < within.to {
		limit := fixed
		if limit == 0 {
			limit = c.Limit()
		}
		if e.now-sent >= e.answers {
			sent = e.now
			for at := len(e.running) + len(e.waiting); left > 0 && at < limit; at++ {
				e.waiting = append(e.waiting, s.sequence(r, e.now))
				left--
			}
		}
		if left == 0 && (!steps || len(e.running)+len(e.waiting) == 0) {
			left = batch
		}
		e.step()
		if e.now-looked >= time.Second {
			looked = e.now
			c.Seen(time.Unix(0, 0).Add(e.now), e.usage(), e.work(left > 0, s.longest))
		}
		if before == nil && e.now > within.from {
			then := e
			before = &then
		}
	}
	return float64(e.tokens-before.tokens) / (e.now - before.now).Seconds(),
		float64(e.preemptions-before.preemptions) / float64(e.finished-before.finished)
}

func TestTheLimitFollowsTheCache(t *testing.T) {
	short := shape{prompt: [2]int{100, 200}, answer: [2]int{100, 256}, longest: 456}
	long := shape{prompt: [2]int{200, 400}, answer: [2]int{1500, 4096}, longest: 4396}
	mixed := shape{prompt: [2]int{100, 1000}, answer: [2]int{50, 450}, long: [2]int{3000, 4096}, longest: 5000}
	for name, c := range map[string]struct {
		shape    shape
		capacity int
		steps    bool
		fixed    []int   // limits around the best
		atLeast  float64 // of the best; 0: 0.97
	}{
		"short answers":               {shape: short, capacity: 200_000, fixed: []int{700, 760, 800}},
		"short answers, step by step": {shape: short, capacity: 200_000, steps: true, fixed: []int{700, 760, 800}},
		"long answers":                {shape: long, capacity: 200_000, fixed: []int{88, 96, 104}},
		"long answers, step by step":  {shape: long, capacity: 200_000, steps: true, fixed: []int{88, 96, 104}},
		"mixed answers":               {shape: mixed, capacity: 200_000, fixed: []int{104, 112, 120}},
		"mixed answers, step by step": {shape: mixed, capacity: 200_000, steps: true, fixed: []int{104, 112, 120, 144, 192}},
		// Of some thirty sequences one is a large part, and to be cautious costs more than a preemption.
		"a small cache": {shape: mixed, capacity: 60_000, fixed: []int{24, 28, 32, 36, 40}, atLeast: .9},
		"a large cache": {shape: mixed, capacity: 1_000_000, fixed: []int{500, 560, 620, 680}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			best := 0.0
			for _, n := range c.fixed {
				rate, _ := run(engine{capacity: c.capacity}, c.shape, n, c.steps, settled)
				best = max(best, rate)
			}
			storm, preemptions := run(engine{capacity: c.capacity}, c.shape, 4*c.fixed[len(c.fixed)-1], c.steps, settled)
			rate, preempted := run(engine{capacity: c.capacity}, c.shape, 0, c.steps, settled)
			t.Logf("%.3f of the best fixed limit, %.2f preemptions a sequence; four times that limit: %.3f, %.2f", rate/best,
				preempted, storm/best, preemptions)
			if want := cmp.Or(c.atLeast, .97) * best; rate < want {
				t.Errorf("%.0f tokens a second, want at least %.0f; the best fixed limit has %.0f", rate, want, best)
			}
			if preempted > preemptions/4 {
				t.Errorf("%.2f preemptions for each sequence, want at most a quarter of %.2f", preempted, preemptions)
			}
		})
	}
}

// From its queue an engine fills a free place at once. One that reserves room does not preempt for it.
func TestAnEngineThatReservesRoomHasAQueue(t *testing.T) {
	s := shape{prompt: [2]int{100, 600}, answer: [2]int{50, 450}, longest: 1050}
	e := engine{capacity: 60_000, reserves: 60, answers: 400 * time.Millisecond}
	best := 0.0
	for _, n := range []int{80, 100, 120, 160} {
		rate, _ := run(e, s, n, false, settled)
		best = max(best, rate)
	}
	rate, preempted := run(e, s, 0, false, settled)
	t.Logf("%.3f of the best fixed limit, %.3f preemptions a sequence", rate/best, preempted)
	if rate < .97*best {
		t.Errorf("%.0f tokens a second, want at least 0.97 of %.0f", rate, best)
	}
}

// Requests often allow many more tokens than answers have. That must not keep the engine idle until the first are done.
func TestTheFirstMinutesOfLongAnswers(t *testing.T) {
	s := shape{prompt: [2]int{200, 400}, answer: [2]int{3000, 9000}, longest: 33_000}
	within := stretch{0, 6 * time.Minute}
	best, _ := run(engine{capacity: 1_000_000}, s, 180, false, within)
	bound, _ := run(engine{capacity: 1_000_000}, s, 28, false, within) // that many of the longest fit
	rate, _ := run(engine{capacity: 1_000_000}, s, 0, false, within)
	if rate < .9*best {
		t.Errorf("%.0f tokens a second, want at least 0.9 of %.0f; with sequences of the greatest length it would be %.0f",
			rate, best, bound)
	}
}

func TestTheLimitOfAQuietEngine(t *testing.T) {
	now := time.Unix(0, 0)
	idle := Usage{Cache: .1, Running: 32, Capacity: 100_000}
	for name, c := range map[string]struct {
		usages []Usage
		work   Work
		want   [2]int
	}{
		"nothing is reported":        {nil, Work{}, [2]int{first, first}},
		"nothing waits":              {[]Usage{idle, idle, idle}, Work{InFlight: 32, Finished: 100}, [2]int{first, first}},
		"the engine has a queue":     {[]Usage{idle, {Cache: .1, Running: 64, Queued: 9}}, busy(64), [2]int{first, first}},
		"more would be begun":        {[]Usage{idle, idle, idle}, busy(64), [2]int{first + 1, 2 * first}},
		"a sequence fills the cache": {[]Usage{{Cache: .99, Running: 1}, {Cache: .99, Running: 1}}, busy(1), [2]int{1, 1}},
		"counts of an engine begin again": {
			[]Usage{{Cache: .1, Running: 9, Preemptions: 90}, {Cache: .1, Running: 9}},
			Work{Finished: 99}, [2]int{first, first}},
		"sequences of 5,000 tokens":   {[]Usage{idle}, Work{InFlight: 32, Longest: 5000}, [2]int{19, 19}},
		"sequences of 100,000 tokens": {[]Usage{idle}, Work{InFlight: 32, Longest: 100_000}, [2]int{least, least}},
		"preemptions": {[]Usage{{Cache: .5, Running: 60}, {Cache: .5, Running: 60, Preemptions: 20}},
			Work{InFlight: 64, Waiting: true, Finished: 100}, [2]int{50, 57}},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := New()
			for i, usage := range c.usages {
				ctl.Seen(now.Add(time.Duration(i)*time.Second), usage, c.work)
			}
			if got := ctl.Limit(); got < c.want[0] || got > c.want[1] {
				t.Errorf("limit is %d, want %d to %d", got, c.want[0], c.want[1])
			}
		})
	}
}

// busy is work with this number of sequences at the engine and more to send.
func busy(inFlight int) Work {
	return Work{InFlight: inFlight, Waiting: true, Finished: 1000, Age: time.Second}
}
