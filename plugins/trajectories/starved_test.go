package trajectories

import (
	"net/http"
	"testing"
	"time"
)

// An environment below its share of a batch can always post, however full the queue is of other environments' groups,
// whose posts wait and are refused in the end.
func TestAnEnvironmentThatOwesItsShareCanAlwaysPost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 2, HoldTimeout: 50 * time.Millisecond})
	f.trainer(4)
	owes, other := f.env("owes", 2, `"weight":1,"min_batch_allocation":0.5`), f.env("other", 2, `"weight":1`)
	if owes != 0 || other != 1 {
		t.Fatal(owes, other)
	}
	for i := range 4 { // twice the bound
		f.post(10+i, 2, `,"env_id":1`)
	}
	code, answer := f.call("POST", "/scored_data", groupText(20, 2, `,"env_id":1`))
	if code != http.StatusServiceUnavailable {
		t.Fatalf("a fifth group of the other environment is answered with %d %v", code, answer)
	}
	f.post(1, 2, `,"env_id":0`)
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{10, 1})
}
