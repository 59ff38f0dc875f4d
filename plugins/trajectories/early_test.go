package trajectories

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// Until its acknowledgement a batch that was leased early changes nothing for anybody, also over a restart.
func TestABatchThatIsLeasedEarlyCountsAsWaiting(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.trainer(4)
	e := f.env("e", 4, `"weight":1`)
	seen := func(f *fixture) []any {
		return []any{f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, e)), f.ok("GET", "/status", "")["current_step"],
			f.ok("GET", "/policy_version", "")["trainer_waits"]}
	}
	for i := range 2 {
		f.post(i, 4, fmt.Sprintf(`,"env_id":%d`, e))
	}
	f.ok("GET", "/batch", "") // which the trainer trains on
	before := seen(f)
	early := f.ok("GET", "/batch?lease=60s&early=true", "")
	equal(t, "the early batch", marksOf(early), []int{1})
	status := func(f *fixture) any { return f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, e))["queue_size"] }
	equal(t, "the queue size", status(f), 1)
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 1)
	equal(t, "another early one", f.ok("GET", "/batch?lease=60s&early=true", "")["batch"], nil)
	equal(t, "what is seen of it", seen(f)[1:], before[1:])
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	f = newFixture(t, cfg)
	equal(t, "the queue size after a restart", status(f), 1)
	equal(t, "the step after a restart", f.ok("GET", "/status", "")["current_step"], 1)
	equal(t, "the acknowledgement", f.ok("POST", "/batch/"+early["id"].(string)+"/ack", "")["repeated"], false)
	equal(t, "the queue size once it is acknowledged", status(f), 0)
	equal(t, "the step once it is acknowledged", f.ok("GET", "/status", "")["current_step"], 2)
	equal(t, "the acknowledgement again", f.ok("POST", "/batch/"+early["id"].(string)+"/ack", "")["repeated"], true)
	equal(t, "the step then", f.ok("GET", "/status", "")["current_step"], 2)
}

func TestAnEarlyBatchThatIsGivenBackOrRunsOutIsTheNext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(2)
	f.post(1, 2, "")
	f.post(2, 2, "")
	id := f.ok("GET", "/batch?lease=30s&early=true", "")["id"].(string)
	f.ok("POST", "/batch/"+id+"/release", "")
	again := f.ok("GET", "/batch?lease=30s&early=1", "")
	equal(t, "after it was given back", marksOf(again), []int{1})
	f.wait(31 * time.Second)
	equal(t, "after it ran out", marksOf(f.ok("GET", "/batch", "")), []int{1})
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 1)
	if code, _ := f.call("POST", "/batch/"+again["id"].(string)+"/ack", ""); code == http.StatusConflict {
		t.Errorf("the batch was delivered and acknowledged: the late acknowledgement answered %d", code)
	}
	equal(t, "the next", marksOf(f.ok("GET", "/batch", "")), []int{2})
	for _, query := range []string{"early=true", "lease=30s&early=perhaps"} {
		if code, said := f.call("GET", "/batch?"+query, ""); code != http.StatusUnprocessableEntity {
			t.Errorf("%s answers %d %v, expected 422", query, code, said)
		}
	}
}

// Weights may have moved on while it was held: its groups meet the same limit as those in the queue.
func TestAnEarlyBatchThatHasBecomeTooOldIsNotTrained(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(4)
	e := f.env("e", 2, `"weight":1`)
	for i := range 3 {
		f.post(i, 2, fmt.Sprintf(`,"env_id":%d,"policy_version":%d`, e, i))
	}
	f.ok("POST", "/policy_version", `{"version":2,"max_staleness":2}`)
	early := f.ok("GET", "/batch?lease=60s&early=true", "")
	equal(t, "the early batch", marksOf(early), []int{0, 1})
	f.ok("POST", "/policy_version", `{"version":3}`)
	if code, said := f.call("POST", "/batch/"+early["id"].(string)+"/ack", ""); code != http.StatusConflict {
		t.Fatalf("its acknowledgement answers %d %v, expected 409", code, said)
	}
	equal(t, "the batch instead", marksOf(f.ok("GET", "/batch", "")), []int{1, 2})
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 1)
}
