package trajectories

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// says joins the activities of the queue, one a line.
func (f *fixture) says() string {
	f.t.Helper()
	lines := make([]string, 0, 2)
	for _, a := range f.Activities() {
		lines = append(lines, fmt.Sprintf("%s | %s | %d/%d | %s", a.On, a.What, a.Have, a.Want, a.Detail))
	}
	return strings.Join(lines, "\n")
}

func (f *fixture) waitsFor(want string) {
	f.t.Helper()
	if got := f.says(); got != want {
		f.t.Errorf("it says\n%s\nexpected\n%s", got, want)
	}
}

// TestTheQueueSaysWhatItWaitsFor covers every reason for which a batch cannot be formed.
func TestTheQueueSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{LimitStaleness: true, MaxStaleness: 1, EnvironmentTimeout: 10 * time.Minute})
	f.waitsFor("trainer.*.* | a trainer to register | 0/0 | ")
	f.ok("POST", "/register", `{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":100}`)
	f.waitsFor("trainer.*.* | its first request for a batch | 0/0 | ")
	f.ok("GET", "/batch", "")
	f.waitsFor("environment.*.* | batch 1 | 0/4 | no environment has registered")

	one := f.env("one", 2, `"weight":1`)
	f.waitsFor("environment.*.one | batch 1 | 0/4 | ")
	f.post(1, 2, fmt.Sprintf(`,"env_id":%d`, one))
	f.waitsFor("environment.*.one | batch 1 | 2/4 | ")

	f.wait(5 * time.Minute)
	f.ok("GET", "/batch", "")
	if a := f.Activities()[0]; a.Idle(f.state.now()) < 5*time.Minute {
		t.Errorf("no group has come for five minutes, and it says %s", a.Idle(f.state.now()))
	}
	f.post(2, 2, fmt.Sprintf(`,"env_id":%d`, one))
	f.waitsFor("trainer.*.* | its next request for a batch | 0/0 | 4 rollouts wait in the queue")
	f.ok("GET", "/batch", "")
	if list := f.Activities(); len(list) != 1 || list[0].On != anyTrainer || !list[0].Rest {
		t.Errorf("the trainer has a batch: %+v", list)
	}
	f.ok("GET", "/batch", "")

	if err := f.SetPolicyVersion(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	for range oldGroups {
		f.post(3, 2, fmt.Sprintf(`,"env_id":%d,"policy_version":1`, one))
	}
	f.waitsFor(" | groups within max_staleness | 0/4 | each of the last 8 groups was dropped: its policy was more than " +
		"1 versions behind version 9")

	f.post(4, 3, "")
	f.post(5, 3, "")
	f.waitsFor(" | a batch of exactly 4 rollouts | 0/0 | 6 rollouts are queued, in groups of 3, " +
		"and no choice of groups " +
		"adds up to 4")

	f.ok("POST", "/disconnect-env", fmt.Sprintf(`{"env_id":%d}`, one))
	f.wait(time.Minute)
	f.waitsFor("trainer.*.* | its next request for a batch | 0/0 | 6 rollouts wait in the queue")
}

// TestTheQueueNamesWhoOwesItsShare names the environment below its minimum, and not the one that has sent enough.
func TestTheQueueNamesWhoOwesItsShare(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(4)
	one := f.env("one", 2, `"weight":1`)
	f.env("two", 2, `"weight":1,"min_batch_allocation":0.5`)
	f.waitsFor("environment.*.one | batch 1 | 0/4 | \nenvironment.*.two | batch 1 | 0/4 | ")
	for i := range 3 {
		f.post(i, 2, fmt.Sprintf(`,"env_id":%d`, one))
	}
	f.waitsFor("environment.*.two | its min_batch_allocation of batch 1 | 0/2 | ")
}

// TestTheQueueSaysWhatToDoWhenNoEnvironmentIsLeft: a trainer that waits for environments whose tasks are used up waits
// for ever.
func TestTheQueueSaysWhatToDoWhenNoEnvironmentIsLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(4)
	one, two := f.env("one", 2, `"weight":1`), f.env("two", 2, `"weight":1`)
	remedy := func() string { return f.Activities()[0].Remedy }
	for i, env := range []int{one, two} {
		if got := remedy(); strings.Contains(got, "no more tasks") {
			t.Errorf("%d of 2 environments are gone, and it says %q", i, got)
		}
		f.ok("POST", "/disconnect-env", fmt.Sprintf(`{"env_id":%d}`, env))
	}
	f.waitsFor("environment.*.* | batch 1 | 0/4 | no environment is connected: two_0 has disconnected")
	got := remedy()
	ended := strings.Index(got, "lower the trainer's steps")
	if failed := strings.Index(got, "have failed"); failed < 0 || failed > ended {
		t.Errorf("no environment is left, and it says %q", got)
	}
}
