package trajectories

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// An environment below its share of a batch can always post, however full the queue is of other environments' groups,
// whose posts wait and are refused in the end.
//
//docs:trajectories.md Bounds
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

// atroposlib's environments end when what is queued makes all steps that are left. One that owes its share of a batch
// is not told so while others' groups alone would be enough: without it none of those batches is formed, and training
// waits for an environment that has left.
func TestAnEnvironmentThatOwesItsShareDoesNotEnd(t *testing.T) {
	t.Parallel()
	const batchSize, groupSize, steps = 4, 2, 2
	f := newFixture(t, Config{})
	f.ok("POST", "/register", `{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":2}`)
	f.ok("GET", "/batch", "")
	owes, other := f.env("owes", groupSize, `"weight":1,"min_batch_allocation":0.5`), f.env("other", groupSize, `"weight":1`)
	ends := func(env int) bool { // as it decides
		s := f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, env))
		return int(s["current_step"].(float64))+int(s["queue_size"].(float64))*groupSize/batchSize > steps
	}
	for i := range 8 {
		f.post(10+i, groupSize, fmt.Sprintf(`,"env_id":%d`, other))
	}
	for step := range steps {
		equal(t, "a batch without its share", f.ok("GET", "/batch", "")["batch"], nil)
		if ends(owes) {
			t.Fatalf("step %d: the environment ends before it has posted what it owes", step)
		}
		if !ends(other) {
			t.Errorf("step %d: the other environment goes on, though all that is asked of it is queued", step)
		}
		f.post(step, groupSize, fmt.Sprintf(`,"env_id":%d`, owes))
		if step == steps-1 && !ends(owes) {
			t.Error("the environment goes on, though the last batch is complete")
		}
		equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{10 + step, step})
	}
}
