package conformance

import (
	"testing"
)

func testExact(t *testing.T, a *api) {
	a.trainer(8)
	for i := range 3 {
		a.post("/scored_data", group(i, 4))
	}
	want(t, "the queue", a.get("/status"), object{"current_step": 0, "queue_size": 3})
	want(t, "the batch", marks(t, a.get("/batch")), []int{0, 1})
	want(t, "the queue", a.get("/status"), object{"current_step": 1, "queue_size": 1})
	if left := a.get("/batch"); left["batch"] != nil {
		t.Errorf("half a batch gives %v, expected null", left)
	}
}

// testOrder uses one batch at a time: the original serves the newest of several formed batches first, ours the oldest.
func testOrder(t *testing.T, a *api) {
	a.trainer(4)
	for round := range 3 {
		a.post("/scored_data", group(10*round, 2))
		a.post("/scored_data", group(10*round+1, 2))
		want(t, "the batch", marks(t, a.get("/batch")), []int{10 * round, 10*round + 1})
	}
}

func testBuffer(t *testing.T, a *api) {
	a.trainer(4)
	e := a.env("e", 4)
	want(t, "2 of 4", a.post("/scored_data", group(1, 2, from(e))), object{"status": "buffered", "buffer_size": 2})
	want(t, "the queue", a.get("/status")["queue_size"], 0)
	want(t, "4 of 4", a.post("/scored_data", group(2, 2, from(e))), object{"status": "buffered", "buffer_size": 0})
	want(t, "the queue", a.get("/status")["queue_size"], 2)
	want(t, "an exact group", a.post("/scored_data", group(3, 4, from(e))), object{"status": "received"})
	want(t, "the queue", a.get("/status")["queue_size"], 3)
}

func testBufferOrder(t *testing.T, a *api) {
	a.trainer(4)
	e := a.env("e", 4)
	want(t, "3 of 4", a.post("/scored_data", group(1, 3, from(e)))["buffer_size"], 3)
	want(t, "3 and 2", a.post("/scored_data", group(2, 2, from(e)))["buffer_size"], 5)
	want(t, "3, 2 and 2: the twos go", a.post("/scored_data", group(3, 2, from(e)))["buffer_size"], 3)
	want(t, "the batch", marks(t, a.get("/batch")), []int{2, 3})
}

func testStatusEnv(t *testing.T, a *api) {
	a.trainer(8)
	e := a.env("e", 4)
	want(t, "the status", a.statusEnv(e), object{"current_step": 0, "queue_size": 0, "unallocated_fraction": 1,
		"self_queue_size": 0, "max_group_size": 1, "env_weight": 1})
	a.post("/scored_data", group(1, 4, from(e)))
	want(t, "the status", a.statusEnv(e), object{"current_step": 0, "queue_size": 1, "unallocated_fraction": 1,
		"self_queue_size": 1, "max_group_size": 4, "env_weight": 1})
}

func testStatusEnvOthers(t *testing.T, a *api) {
	a.trainer(16)
	one, two := a.env("one", 4), a.env("two", 2, object{"max_token_length": 1024, "weight": 1.5})
	a.post("/scored_data", group(1, 4, from(one)))
	for i := range 3 {
		a.post("/scored_data", group(10+i, 2, from(two)))
	}
	s := a.statusEnv(one)
	want(t, "the queue of one", s["queue_size"], (4+8)/4)
	want(t, "its own queue", s["self_queue_size"], 1)
	want(t, "its weight", s["env_weight"], 0.25)
	s = a.statusEnv(two)
	want(t, "the queue of two", s["queue_size"], (6+4)/2)
	want(t, "its own queue", s["self_queue_size"], 3)
	want(t, "its weight", s["env_weight"], 0.75)
	tiny := a.env("tiny", 4, object{"weight": 0.0001})
	want(t, "the least weight", a.statusEnv(tiny)["env_weight"], 0.01)
}

func testStatusEnvMinimum(t *testing.T, a *api) {
	a.trainer(16)
	one, two := a.env("one", 4, object{"min_batch_allocation": 0.25}), a.env("two", 4, object{"min_batch_allocation": 0.5})
	for i := range 4 {
		a.post("/scored_data", group(i, 4, from(two)))
	}
	s := a.statusEnv(one)
	want(t, "the part that no environment claims", s["unallocated_fraction"], 0.25)
	want(t, "the queue, less what two claims", s["queue_size"], (16-8)/4)
	a.post("/disconnect-env", object{"env_id": two})
	s = a.statusEnv(one)
	want(t, "the part that no environment claims", s["unallocated_fraction"], 0.75)
	want(t, "the queue", s["queue_size"], 4)
}

func testMinimum(t *testing.T, a *api) {
	a.trainer(8)
	one, two := a.env("one", 2, object{"min_batch_allocation": 0.5}), a.env("two", 2)
	for i := range 4 {
		a.post("/scored_data", group(20+i, 2, from(two)))
	}
	if b := a.get("/batch"); b["batch"] != nil {
		t.Fatalf("a batch without the claimed half: %v", marks(t, b))
	}
	a.post("/scored_data", group(10, 2, from(one)))
	a.post("/scored_data", group(11, 2, from(one)))
	got := marks(t, a.get("/batch"))
	claimed := 0
	for _, m := range got {
		if m < 20 {
			claimed++
		}
	}
	if len(got) != 4 || claimed < 2 {
		t.Errorf("the batch is %v, expected four groups, two of them of the environment that claims half", got)
	}
}

func testLatest(t *testing.T, a *api) {
	a.trainer(4)
	a.post("/scored_data", group(1, 2))
	a.post("/scored_data", group(2, 2, object{"generation_params": object{"temperature": 0.5}}))
	latest := a.get("/latest_example")
	want(t, "the latest group", latest["tokens"], "[[2 0 7] [2 1 7]]")
	want(t, "its parameters", latest["generation_params"], object{"temperature": 0.5})
	a.get("/batch")
	want(t, "the latest group after its delivery", a.get("/latest_example")["tokens"], "[[2 0 7] [2 1 7]]")
}

func testSteps(t *testing.T, a *api) {
	body := registration(2)
	body["starting_step"] = 5
	a.post("/register", body)
	a.get("/batch")
	want(t, "the step", a.get("/status")["current_step"], 5)
	want(t, "an environment's first step", a.post("/register-env", object{"max_token_length": 1, "desired_name": "e",
		"weight": 1, "group_size": 2})["starting_step"], 5)
	a.post("/scored_data", group(1, 2))
	a.get("/batch")
	want(t, "the step after a batch", a.get("/status")["current_step"], 6)
	want(t, "a later environment's first step", a.post("/register-env", object{"max_token_length": 1, "desired_name": "e",
		"weight": 1, "group_size": 2})["starting_step"], 6)
}

func testWandb(t *testing.T, a *api) {
	body := registration(2)
	body["wandb_group"], body["wandb_project"] = "", "x"
	a.post("/register", body)
	want(t, "/wandb_info", a.get("/wandb_info"), object{"group": "", "project": "x"})
}
