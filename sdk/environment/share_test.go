package environment

import "testing"

// The groups of others in the queue do not stop an environment below its share of a batch: theirs cannot be trained
// without it. It stops when its share of the batches that may be ahead of training is queued.
func TestAnEnvironmentThatOwesItsShareGoesOn(t *testing.T) {
	t.Parallel()
	half := 0.5
	r := &rollouts{batchSize: 8, queued: 100}
	r.settings.GroupSize, r.settings.MaxBatchesOffpolicy, r.settings.Concurrency = 4, 2, 8
	if r.room() {
		t.Error("without a share it samples, although the queue is full")
	}
	r.settings.MinBatchAllocation = &half
	if !r.room() {
		t.Error("it owes half of two batches, 2 groups, has none, and does not sample")
	}
	r.own, r.inFlight = 1, 1
	if r.room() {
		t.Error("its share is queued or under way, the queue is full, and it samples")
	}
}
