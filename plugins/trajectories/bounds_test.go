package trajectories

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTheBoundOnBytesHoldsPostsToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueBytes: 3000, HoldTimeout: time.Millisecond})
	f.trainer(2)
	f.post(1, 2, `,"images":"`+strings.Repeat("x", 2500)+`"`)
	if code, _ := f.call("POST", "/scored_data", groupText(2, 2, `,"images":"`+strings.Repeat("x", 1000)+
		`"`)); code != http.StatusServiceUnavailable {
		t.Errorf("a post beyond the bound is answered with %d, expected 503", code)
	}
	f.ok("GET", "/batch", "")
	f.post(3, 2, `,"images":"`+strings.Repeat("x", 2500)+`"`)
}

func TestEnvironmentsTellWhenTheyWereLastSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{EnvironmentTimeout: time.Minute})
	f.trainer(2)
	f.env("e", 2, `"weight":1`)
	report := func() map[string]any {
		return f.ok("GET", "/environments", "")["environments"].([]any)[0].(map[string]any)
	}
	f.wait(40 * time.Second)
	equal(t, "the silence", report()["last_seen_seconds"], 40)
	f.wait(40 * time.Second)
	equal(t, "whether it counts", report()["connected"], false)
	f.post(1, 2, `,"env_id":0`)
	equal(t, "the silence after a post", report()["last_seen_seconds"], 0)
	equal(t, "whether it counts after a post", report()["connected"], true)
}

// An environment that steers as atroposlib's do stays within its max_batches_offpolicy. run-api moved groups into
// formed batches that its status did not report, and the environment filled the queue a second time.
//
//docs:troubleshooting.md Staleness of twice the setting
func TestLagStaysWhatTheEnvironmentAllows(t *testing.T) {
	t.Parallel()
	const batchSize, groupSize, offPolicy = 8, 2, 3
	f := newFixture(t, Config{})
	f.trainer(batchSize)
	env := f.env("e", groupSize, `"weight":1`)
	version, worst := 0, 0
	for step := range 200 {
		for { // the environment continues until the status tells it to pause
			s := f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, env))
			if int(s["queue_size"].(float64))*groupSize >= offPolicy*batchSize {
				break
			}
			f.post(version, groupSize, fmt.Sprintf(`,"env_id":%d,"policy_version":%d`, env, version))
		}
		if step%5 == 0 { // a trainer that dies before it acknowledges
			lost := f.ok("GET", "/batch?lease=60s", "")
			f.ok("POST", "/batch/"+lost["id"].(string)+"/release", "")
		}
		for _, sampled := range marksOf(f.ok("GET", "/batch", "")) {
			worst = max(worst, version-sampled)
		}
		version++
		f.ok("POST", "/policy_version", fmt.Sprintf(`{"version":%d}`, version))
	}
	if worst > offPolicy {
		t.Errorf("a group was %d versions old when it was trained, the environment allows %d", worst, offPolicy)
	}
	if worst == 0 {
		t.Error("nothing was ever stale: the test tests nothing")
	}
}

// Sizes are multiplied: those that overflow are refused, and so is a number of steps without limit.
func TestNumbersOfARegistrationDoNotOverflow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 1})
	for body, want := range map[string]int{
		`{"wandb_group":"g","batch_size":2147483648,"max_token_len":9,"checkpoint_dir":"","num_steps":1}`:          http.StatusUnprocessableEntity,
		`{"wandb_group":"g","batch_size":1e300,"max_token_len":9,"checkpoint_dir":"","num_steps":1}`:               http.StatusUnprocessableEntity,
		`{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":9223372036854775808}`: http.StatusUnprocessableEntity,
		`{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":9223372036854775807}`: http.StatusOK,
	} {
		if code, out := f.call("POST", "/register", body); code != want {
			t.Errorf("%s is answered with %d %v, expected %d", body, code, out, want)
		}
	}
	f.ok("GET", "/batch", "")
	if code, out := f.call("POST", "/register-env", `{"max_token_length":9,"desired_name":"e","weight":1,"group_size":2147483648}`); code != http.StatusUnprocessableEntity {
		t.Errorf("a group size of 2^31 is answered with %d %v, expected 422", code, out)
	}
	env := f.env("e", 2, `"weight":1,"min_batch_allocation":1e30`)
	f.post(1, 2, fmt.Sprintf(`,"env_id":%d`, env))
	f.post(1, 2, fmt.Sprintf(`,"env_id":%d`, env))
	s := f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, env))
	if size := s["queue_size"].(float64); size < 1 || size > 100 {
		t.Errorf("the environment sees a queue of %v, expected a few groups", size)
	}
	equal(t, "the minimum", f.state.claim(env, 4), int64(4))
}
