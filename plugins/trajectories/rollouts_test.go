package trajectories

import (
	"net/http"
	"strings"
	"testing"
)

// parts is the end of a group whose sequences are parts of the rollouts with these numbers.
func parts(rollouts ...string) string {
	return `,"env_id":0,"overrides":[{"rollout":` + strings.Join(rollouts, `},{"rollout":`) + `}]`
}

// Batches and groups are counted in rollouts, before and after a restart.
func TestBatchesCountRollouts(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.ok("POST", "/register", `{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":9,"rollout_parts":true}`)
	f.ok("GET", "/batch", "")
	f.env("agents", 2, `"weight":1`)
	equal(t, "rollout_parts", f.ok("GET", "/info", "")["rollout_parts"], true)
	f.post(1, 5, parts("0", "0", "0", "1", "1"))
	equal(t, "the batch of one group", f.ok("GET", "/batch", "")["batch"], nil)
	equal(t, "own groups that wait", f.ok("GET", "/status-env", `{"env_id":0}`)["self_queue_size"], 1)
	equal(t, "a group of one rollout", f.post(2, 2, parts("0", "0"))["buffer_size"], 1)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = newFixture(t, cfg)
	equal(t, "the other half of the group", f.post(3, 1, parts("0"))["buffer_size"], 0)
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{1, 2, 3})
	code, reply := f.call("POST", "/scored_data", groupText(4, 2, `,"scores":[1,2]`+parts("0", "0")))
	equal(t, "two scores of a rollout", code, http.StatusUnprocessableEntity)
	if detail, _ := reply["detail"].([]any); len(detail) != 1 {
		t.Errorf("two scores of a rollout are answered with %v", reply)
	}
	f.trainer(4) // another one, which does not train on parts
	equal(t, "rollout_parts", f.ok("GET", "/info", "")["rollout_parts"], nil)
}
