package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Promises checks what recipe's server does beyond the contract, most of it where the original fails.
func Promises(t *testing.T, url string) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, a *api)
	}{
		{"oldest batch first", testOldestFirst}, {"steps count deliveries", testStepsCountDeliveries},
		{"sizes mix", testSizesMix},
		{"odd groups do not block", testOddGroups}, {"too large a group is refused", testTooLarge},
		{"released buffers are delivered", testReleasedBuffer},
		{"data before the trainer waits", testDataFirst}, {"a second trainer takes over", testTakeOver},
		{"the documented registration", testShortRegistration},
		{"non-finite numbers", testNonFinite}, {"numbers out of range", testOutOfRange}, {"lengths", testLengths},
		{"web pages", testWebPages}, {"environment ids", testEnvironmentIDs}, {"truncated gzip", testTruncatedGzip},
		{"weight zero", testWeightZero}, {"batch after a reset", testBatchAfterReset},
		{"minimum is strict and counts anonymous groups", testStrictMinimum},
		{"leases", testLeases}, {"a lease can be given back", testRelease},
		{"leases of a replaced trainer", testLeaseTakeOver},
		{"policy versions", testVersions}, {"wrong messages", testWrongMessages}, {"a parked group", testParked},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &api{t, strings.TrimSuffix(url, "/")}
			a.reset()
			test.run(t, a)
		})
	}
}

func testOldestFirst(t *testing.T, a *api) {
	a.trainer(2)
	for i := range 3 {
		a.post("/scored_data", group(i, 2))
	}
	for i := range 3 {
		want(t, "the batch", marks(t, a.get("/batch")), []int{i})
	}
}

func testStepsCountDeliveries(t *testing.T, a *api) {
	a.trainer(2)
	for i := range 3 {
		a.post("/scored_data", group(i, 2))
	}
	a.get("/batch")
	want(t, "after one delivery of three", a.get("/status"), object{"current_step": 1, "queue_size": 2})
}

func testSizesMix(t *testing.T, a *api) {
	a.trainer(8)
	for i, size := range []int{4, 2, 1, 1} {
		a.post("/scored_data", group(i, size))
	}
	want(t, "the batch", marks(t, a.get("/batch")), []int{0, 1, 2, 3})
	for i, size := range []int{5, 2, 2, 3} {
		a.post("/scored_data", group(i, size))
	}
	want(t, "the only exact batch", marks(t, a.get("/batch")), []int{0, 3})
}

func testOddGroups(t *testing.T, a *api) {
	a.trainer(8)
	a.post("/scored_data", group(0, 5))
	a.post("/scored_data", group(1, 4))
	a.post("/scored_data", group(2, 4))
	want(t, "the batch around the five", marks(t, a.get("/batch")), []int{1, 2})
	want(t, "the queue", a.get("/status")["queue_size"], 1)
}

func testTooLarge(t *testing.T, a *api) {
	a.trainer(4)
	out := a.refused("/scored_data", group(0, 5))
	if text, _ := json.Marshal(out); !strings.Contains(string(text), "batch of 4") ||
		!strings.Contains(string(text), "tokens") {
		t.Errorf("the refusal %s says neither the field nor the batch size", text)
	}
	a.post("/scored_data", group(1, 4))
	want(t, "the batch", marks(t, a.get("/batch")), []int{1})
}

func testReleasedBuffer(t *testing.T, a *api) {
	a.trainer(4)
	e := a.env("e", 4)
	a.post("/scored_data", group(1, 3, from(e)))
	want(t, "the buffer", a.post("/scored_data", group(2, 1, from(e)))["buffer_size"], 0)
	want(t, "the batch", marks(t, a.get("/batch")), []int{1, 2})
}

func testDataFirst(t *testing.T, a *api) {
	want(t, "a post before the trainer", a.post("/scored_data", group(1, 2))["status"], "received")
	a.trainer(4)
	a.post("/scored_data", group(2, 2))
	want(t, "the batch", marks(t, a.get("/batch")), []int{1, 2})
}

func testTakeOver(t *testing.T, a *api) {
	a.trainer(2)
	a.post("/scored_data", group(1, 2))
	a.get("/batch")
	a.post("/scored_data", group(2, 2))
	a.post("/register", registration(4))
	want(t, "/info", a.get("/info")["batch_size"], 4)
	want(t, "the step continues, the queue stays", a.get("/status"), object{"current_step": 1, "queue_size": 1})
	a.post("/scored_data", group(3, 2))
	want(t, "the batch of the new size", marks(t, a.get("/batch")), []int{2, 3})
}

func testShortRegistration(t *testing.T, a *api) {
	out := a.post("/register", object{"wandb_group": "g", "batch_size": 2, "max_token_len": 5, "checkpoint_dir": "",
		"num_steps": 3})
	if out["uuid"] == nil {
		t.Errorf("answered %v, expected a uuid", out)
	}
}

func testNonFinite(t *testing.T, a *api) {
	a.trainer(1)
	for _, body := range []string{
		`{"tokens":[[1]],"masks":[[1]],"scores":[NaN]}`, `{"tokens":[[1]],"masks":[[1]],"scores":[Infinity]}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1e999]}`, `{"tokens":[[1]],"masks":[[1]],"scores":["nan"]}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"inference_logprobs":[[-Infinity]]}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"images":{"a":NaN}}`,
	} {
		if r := a.send(http.MethodPost, "/scored_data", []byte(body)); r.code != 422 ||
			!strings.Contains(string(r.body), "finite") {
			t.Errorf("%s: answered %d %s, expected 422", body, r.code, r.body)
		}
	}
	if b := a.get("/batch"); b["batch"] != nil {
		t.Errorf("accepted: %v", b)
	}
}

// testOutOfRange: run-api stores what no trainer can read, and each restart of a trainer then fails on it.
func testOutOfRange(t *testing.T, a *api) {
	a.trainer(1)
	for _, body := range []string{
		`{"tokens":[[100000000000000000000000000]],"masks":[[-100]],"scores":[0]}`,
		`{"tokens":[[2147483648]],"masks":[[-100]],"scores":[0]}`,
		`{"tokens":[[-1]],"masks":[[-100]],"scores":[0]}`, `{"tokens":[[1]],"masks":[[-2147483649]],"scores":[0]}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1e39]}`, `{"tokens":[[1]],"masks":[[1]],"scores":[1],"env_id":2147483648}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"policy_version":9223372036854775808}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"images":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
	} {
		if r := a.send(http.MethodPost, "/scored_data", []byte(body)); r.code != 422 {
			t.Errorf("%.100s: answered %d %s, expected 422", body, r.code, r.body)
		}
	}
	if b := a.get("/batch"); b["batch"] != nil {
		t.Errorf("accepted: %v", b)
	}
}

// testWebPages: run-api answers every page, with credentials, so that an image in a page can delete all data.
func testWebPages(t *testing.T, a *api) {
	a.trainer(1)
	a.post("/scored_data", group(1, 1))
	for _, header := range []string{"Origin", "Referer"} {
		want(t, "a page that reads", a.send(http.MethodGet, "/latest_example", nil, header, "http://example.com").code, 403)
		want(t, "a page that resets", a.send(http.MethodGet, "/reset_data", nil, header, "http://example.com").code, 403)
	}
	want(t, "an image", a.send(http.MethodGet, "/reset_data", nil, "Sec-Fetch-Site", "cross-site").code, 403)
	want(t, "a preflight", a.send(http.MethodOptions, "/scored_data", nil, "Origin", "http://example.com",
		"Access-Control-Request-Method", "POST").code, 403)
	want(t, "what waits", a.get("/status")["queue_size"], 1)
}

func testLengths(t *testing.T, a *api) {
	a.trainer(8)
	for field, g := range map[string]object{
		"masks":  {"tokens": [][]int{{1, 2}}, "masks": [][]int{{1}}, "scores": []int{1}},
		"scores": {"tokens": [][]int{{1}, {2}}, "masks": [][]int{{1}, {2}}, "scores": []int{1}},
		"inference_logprobs": {"tokens": [][]int{{1, 2}}, "masks": [][]int{{1, 2}}, "scores": []int{1},
			"inference_logprobs": [][]int{{1}}},
		"ref_logprobs": {"tokens": [][]int{{1, 2}}, "masks": [][]int{{1, 2}}, "scores": []int{1},
			"ref_logprobs": [][]int{{1, 2}, {1, 2}}},
		"tokens": {"tokens": [][]int{}, "masks": [][]int{}, "scores": []int{}},
	} {
		if text, _ := json.Marshal(a.refused("/scored_data", g)); !strings.Contains(string(text), `"`+field+`"`) {
			t.Errorf("the refusal %s does not name %s", text, field)
		}
	}
}

func testEnvironmentIDs(t *testing.T, a *api) {
	a.trainer(4)
	a.env("e", 4)
	a.refused("/scored_data", group(1, 4, from(-1)))
	a.code(422, http.MethodGet, "/status-env", object{"env_id": 5})
	a.code(422, http.MethodGet, "/status-env", object{"env_id": -1})
}

func testTruncatedGzip(t *testing.T, a *api) {
	a.trainer(4)
	whole := zip(encode(t, group(1, 4)))
	if r := a.send(http.MethodPost, "/scored_data", whole[:len(whole)-5], "Content-Encoding", "gzip"); r.code != 400 {
		t.Errorf("answered %d %s, expected 400", r.code, r.body)
	}
}

func testWeightZero(t *testing.T, a *api) {
	a.trainer(4)
	e := a.env("e", 4, object{"weight": 0})
	want(t, "the weight", a.statusEnv(e)["env_weight"], 0.01)
	a.post("/scored_data", group(1, 4, from(e)))
	want(t, "the batch", marks(t, a.get("/batch")), []int{1})
}

func testBatchAfterReset(t *testing.T, a *api) {
	a.trainer(4)
	a.reset()
	want(t, "the answer", a.get("/batch")["status"], "error")
}

func testStrictMinimum(t *testing.T, a *api) {
	a.trainer(8)
	one := a.env("one", 2, object{"min_batch_allocation": 0.5})
	for i := range 3 {
		a.post("/scored_data", group(20+i, 2))
	}
	a.post("/scored_data", group(10, 2, from(one)))
	if b := a.get("/batch"); b["batch"] != nil {
		t.Fatalf("a batch with a quarter where half is claimed: %v", marks(t, b))
	}
	a.post("/scored_data", group(11, 2, from(one)))
	got := marks(t, a.get("/batch"))
	want(t, "the number of groups", len(got), 4)
	claimed := 0
	for _, m := range got {
		if m == 10 || m == 11 {
			claimed++
		}
	}
	want(t, "the claimed groups in it", claimed, 2)
}

func testLeases(t *testing.T, a *api) {
	a.trainer(2)
	a.post("/scored_data", group(1, 2))
	a.post("/scored_data", group(2, 2))
	first := a.get("/batch?lease=60s")
	want(t, "the first lease", marks(t, first), []int{1})
	second := a.get("/batch?lease=60")
	want(t, "the second lease", marks(t, second), []int{2})
	if b := a.get("/batch"); b["batch"] != nil {
		t.Errorf("leased groups are handed out again: %v", b)
	}
	path := "/batch/" + first["id"].(string) + "/ack"
	want(t, "an acknowledgement", a.post(path, nil)["repeated"], false)
	want(t, "a repeated one", a.post(path, nil)["repeated"], true)
	want(t, "the step", a.get("/status")["current_step"], 2)
	a.code(404, http.MethodPost, "/batch/nonsense/ack", nil)
	a.code(404, http.MethodPost, "/batch/00000000-1-1/ack", nil)
	a.code(422, http.MethodGet, "/batch?lease=soon", nil)
	a.code(405, http.MethodGet, path, nil)
}

func testRelease(t *testing.T, a *api) {
	a.trainer(2)
	a.post("/scored_data", group(1, 2))
	first := a.get("/batch?lease=60s")["id"].(string)
	a.post("/batch/"+first+"/release", nil)
	again := a.get("/batch?lease=60s")
	want(t, "the batch comes again", marks(t, again), []int{1})
	a.code(409, http.MethodPost, "/batch/"+first+"/ack", nil)
	a.post("/batch/"+again["id"].(string)+"/ack", nil)
	want(t, "the step counts it once", a.get("/status")["current_step"], 1)
}

func testLeaseTakeOver(t *testing.T, a *api) {
	a.trainer(2)
	a.post("/scored_data", group(1, 2))
	old := a.get("/batch?lease=1h")["id"].(string)
	a.post("/register", registration(2))
	want(t, "the new trainer gets what the old one had", marks(t, a.get("/batch")), []int{1})
	// The server learns that the batch was delivered a moment after its last byte was read; until then the lease is lost.
	code, acked := a.call(http.MethodPost, "/batch/"+old+"/ack", nil)
	for begun := time.Now(); code == http.StatusConflict && time.Since(begun) < 10*time.Second; {
		time.Sleep(10 * time.Millisecond)
		code, acked = a.call(http.MethodPost, "/batch/"+old+"/ack", nil)
	}
	want(t, "the old one's acknowledgement", acked["repeated"], true)
}

func testVersions(t *testing.T, a *api) {
	a.trainer(2)
	want(t, "the version at first", a.get("/policy_version")["version"], -1)
	a.post("/scored_data", group(1, 2, object{"policy_version": 3}))
	a.post("/scored_data", group(2, 2, object{"policy_version": []int{3, 5}}))
	want(t, "the version", a.post("/policy_version", object{"version": 4})["version"], 4)
	want(t, "what is known of answers in flight", a.get("/policy_version")["in_flight"], nil)
	a.post("/policy_version", object{"version": 4, "in_flight": "keep"})
	a.post("/policy_version", object{"version": 4})
	want(t, "answers in flight go on", a.get("/policy_version")["in_flight"], "keep")
	a.post("/policy_version", object{"version": 4, "in_flight": "drain"})
	want(t, "they do not any more", a.get("/policy_version")["in_flight"], nil)
	a.refused("/policy_version", object{"version": 4, "in_flight": 1})
	want(t, "the version does not go back", a.post("/policy_version", object{"version": 2})["version"], 4)
	want(t, "one version", a.get("/batch")["batch"].([]any)[0].(object)["policy_version"], 3)
	want(t, "a range", a.get("/batch")["batch"].([]any)[0].(object)["policy_version"], "[3 5]")
	a.refused("/scored_data", group(3, 2, object{"policy_version": []int{5, 3}}))
	a.refused("/policy_version", object{"version": -1})
}

func testWrongMessages(t *testing.T, a *api) {
	a.trainer(1)
	a.refused("/scored_data", group(1, 1, object{"messages": []any{[]any{1}}}))
}

func testParked(t *testing.T, a *api) {
	a.post("/scored_data", group(1, 4))
	a.trainer(2)
	a.post("/scored_data", group(2, 2))
	want(t, "what fits", marks(t, a.get("/batch")), []int{2})
	if b := a.get("/batch"); b["batch"] != nil {
		t.Errorf("a group of 4 in a batch of 2: %v", b)
	}
	a.post("/register", registration(4))
	want(t, "what fits the larger batch", marks(t, a.get("/batch")), []int{1})
}
