package environment

import (
	"testing"
	"time"
)

// shop is inference and a trainer in simulated time: groups in flight share inference, whose speed grows with their
// number less and less, and the trainer takes a batch of 16 groups whenever it is free.
type shop struct {
	r       *rollouts
	paced   bool
	now     time.Time
	started []time.Time // of the groups in flight
	left    []float64   // of each, from 1 to 0
	free    time.Duration
	steps   []time.Duration // when each batch was taken
}

const (
	shopBatch = 16
	shopTick  = 5 * time.Millisecond
	shopStep  = 3800 * time.Millisecond
)

func newShop(paced bool, ahead int64) *shop {
	r := &rollouts{batchSize: shopBatch}
	r.settings.GroupSize, r.settings.MaxBatchesOffpolicy = 1, ahead
	return &shop{r: r, paced: paced, now: time.Unix(0, 0), free: 4 * time.Second}
}

// run lets time pass.
func (s *shop) run(seconds int) {
	for end := s.now.Add(time.Duration(seconds) * time.Second); s.now.Before(end); {
		s.now = s.now.Add(shopTick)
		for s.paced && s.r.begins(s.now) || !s.paced && s.r.room() {
			s.r.inFlight++
			s.r.pace.begun()
			s.started, s.left = append(s.started, s.now), append(s.left, 1)
		}
		s.sample()
		if t := s.now.Sub(time.Unix(0, 0)); s.r.queued >= shopBatch && t >= s.free {
			s.r.queued, s.free, s.steps = s.r.queued-shopBatch, t+shopStep, append(s.steps, t)
		}
	}
}

// sample does what inference does in a tick: 16 groups take 5 s together, 32 take 8.
func (s *shop) sample() {
	each := shopTick.Seconds() / (2 + 3*float64(s.r.inFlight)/shopBatch)
	var started []time.Time
	var left []float64
	for i := range s.left {
		if l := s.left[i] - each; l > 0 {
			started, left = append(started, s.started[i]), append(left, l)
			continue
		}
		s.r.inFlight--
		s.r.queued++
		s.r.pace.done(s.now.Sub(s.started[i]))
	}
	s.started, s.left = started, left
}

// The first batch is done as early as if no other were asked for, and as many batches come in the long run as where all
// that may be ahead is begun at once: the second and later ones are at most a second behind those, of 400.
func TestTheNextBatchIsSampledBeforeThoseAfterIt(t *testing.T) {
	t.Parallel()
	alone, paced, together := newShop(false, 1), newShop(true, 2), newShop(false, 2)
	for _, s := range []*shop{alone, paced, together} {
		s.run(400)
	}
	t.Logf("steps begin:\nalone    %v\npaced    %v\ntogether %v", alone.steps[:6], paced.steps[:6], together.steps[:6])
	if first := paced.steps[0]; first != alone.steps[0] || first > together.steps[0]*3/4 {
		t.Errorf("step 1 begins after %v; %v when one batch is asked for, %v when two are", first, alone.steps[0],
			together.steps[0])
	}
	for i := range len(together.steps) - 1 {
		if late := paced.steps[i] - together.steps[i]; late > time.Second {
			t.Fatalf("step %d begins after %v, and after %v where batches are begun together", i+1, paced.steps[i],
				together.steps[i])
		}
	}
}

// When a second batch may be ahead from now on, it does not hold up the one that the trainer waits for.
func TestASecondBatchAheadComesBehindTheNext(t *testing.T) {
	t.Parallel()
	paced, together := newShop(true, 1), newShop(false, 1)
	for _, s := range []*shop{paced, together} {
		s.run(10)
		s.r.spanning, s.r.settings.MaxBatchesOffpolicy = true, 0
		s.run(10)
	}
	if p, q := paced.steps, together.steps; len(p) < 3 || len(q) < 3 || p[2] >= q[2] {
		t.Errorf("steps begin after %v, and after %v where batches are begun together", p, q)
	}
}

// Before any group is done nobody knows how long one takes: the next batch alone is in flight, unless others have
// filled the queue.
func TestOneBatchIsBegunUntilAGroupIsDone(t *testing.T) {
	t.Parallel()
	s := newShop(true, 3)
	s.run(4)
	if s.r.inFlight != shopBatch {
		t.Errorf("%d groups are in flight, want a batch of %d", s.r.inFlight, shopBatch)
	}
	others := newShop(true, 2)
	others.r.queued, others.free = shopBatch, time.Hour
	others.run(1)
	if others.r.inFlight == 0 {
		t.Error("the queue holds others' groups, and this environment begins none")
	}
}
