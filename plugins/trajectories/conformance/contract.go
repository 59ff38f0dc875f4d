package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Contract checks what every implementation must do. The server is reset between tests; they run one after the other.
func Contract(t *testing.T, url string) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, a *api)
	}{
		{"root", testRoot}, {"unregistered", testUnregistered}, {"register", testRegister}, {"reset", testReset},
		{"environments wait for the trainer", testEnvironmentsWait}, {"environment names", testEnvironmentNames},
		{"disconnect", testDisconnect}, {"http errors", testHTTPErrors}, {"validation", testValidation},
		{"coercion", testCoercion},
		{"fields round trip", testFields}, {"empty optional lists", testEmptyLists}, {"anonymous groups", testAnonymous},
		{"list", testList}, {"list is all or nothing", testListAtomic}, {"gzip", testGzip}, {"gzip replies", testGzipReplies},
		{"batches are exact", testExact}, {"order", testOrder}, {"buffer", testBuffer},
		{"buffer prefers old groups", testBufferOrder},
		{"status-env", testStatusEnv}, {"status-env with others", testStatusEnvOthers},
		{"status-env minimum", testStatusEnvMinimum},
		{"minimum", testMinimum}, {"latest example", testLatest}, {"big integers", testBigIntegers},
		{"steps", testSteps}, {"wandb", testWandb}, {"trailing slash", testTrailingSlash}, {"messages", testMessages},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &api{t, strings.TrimSuffix(url, "/")}
			a.reset()
			test.run(t, a)
		})
	}
}

func testRoot(t *testing.T, a *api) {
	want(t, "the root", a.get("/")["message"], "AtroposLib API")
}

func testUnregistered(t *testing.T, a *api) {
	want(t, "/info's batch size", a.get("/info")["batch_size"], -1)
	want(t, "/status", a.get("/status"), object{"current_step": 0, "queue_size": 0})
	want(t, "/wandb_info", a.get("/wandb_info"), object{"group": nil, "project": nil})
	want(t, "/register-env", a.post("/register-env", object{"max_token_length": 1, "desired_name": "x", "weight": 1,
		"group_size": 1})["status"], "wait for trainer to start")
}

func testRegister(t *testing.T, a *api) {
	r := a.send(http.MethodPost, "/register", encode(t, registration(8)))
	var out struct{ UUID json.Number }
	if err := json.Unmarshal(r.body, &out); err != nil || len(out.UUID) < 30 || strings.ContainsAny(out.UUID.String(),
		".e") {
		t.Errorf("the uuid is %s in %s, expected an integer of 128 bits", out.UUID, r.body)
	}
	want(t, "/info", a.get("/info"), object{"batch_size": 8, "max_token_len": 512})
	batch := a.get("/batch")
	if value, ok := batch["batch"]; !ok || value != nil {
		t.Errorf("an empty queue gives %v, expected a null batch", batch)
	}
	for _, field := range []string{"batch_size", "max_token_len", "checkpoint_dir", "num_steps"} {
		body := registration(8)
		delete(body, field)
		a.refused("/register", body)
	}
	a.refused("/register", object{"wandb_group": nil, "wandb_project": "", "batch_size": 1, "max_token_len": 1,
		"checkpoint_dir": "", "save_checkpoint_interval": 1, "starting_step": 0, "num_steps": 1})
}

func testReset(t *testing.T, a *api) {
	a.trainer(4)
	a.env("e", 2)
	a.post("/scored_data", group(1, 2))
	a.reset()
	want(t, "/info's batch size", a.get("/info")["batch_size"], -1)
	want(t, "/status", a.get("/status"), object{"current_step": 0, "queue_size": 0})
	want(t, "/wandb_info", a.get("/wandb_info"), object{"group": nil, "project": nil})
}

func testEnvironmentsWait(t *testing.T, a *api) {
	in := object{"max_token_length": 100, "desired_name": "e", "weight": 1.0, "group_size": 4}
	a.post("/register", registration(8))
	want(t, "before the first batch", a.post("/register-env", in)["status"], "wait for trainer to start")
	a.get("/batch")
	want(t, "after it", a.post("/register-env", in), object{"status": "success", "env_id": 0, "wandb_name": "e_0",
		"checkpoint_dir": "/ckpt",
		"starting_step":  0, "checkpoint_interval": 10, "num_steps": 100})
}

func testEnvironmentNames(t *testing.T, a *api) {
	a.trainer(8)
	for i, name := range []string{"math_0", "code_0", "math_1"} {
		out := a.post("/register-env", object{"max_token_length": 100, "desired_name": strings.Split(name, "_")[0],
			"weight": 1.0, "group_size": 4})
		want(t, "the id", out["env_id"], i)
		want(t, "the name", out["wandb_name"], name)
	}
	a.refused("/register-env", object{"max_token_length": 100, "desired_name": nil, "weight": 1.0, "group_size": 4})
	a.refused("/register-env", object{"desired_name": "x", "weight": 1.0, "group_size": 4})
}

func testDisconnect(t *testing.T, a *api) {
	a.trainer(8)
	one, two := a.env("one", 4), a.env("two", 4)
	want(t, "the weight of one of two", a.statusEnv(one)["env_weight"], 0.5)
	want(t, "disconnecting", a.post("/disconnect-env", object{"env_id": two}), object{"status": "success"})
	want(t, "the weight of the one that is left", a.statusEnv(one)["env_weight"], 1)
	want(t, "disconnecting an unknown environment", a.post("/disconnect-env", object{"env_id": 99})["status"], "failure")
	want(t, "the next id", a.env("three", 4), 2)
}

func testHTTPErrors(t *testing.T, a *api) {
	want(t, "an unknown route", a.code(404, http.MethodGet, "/nothing", nil)["detail"], "Not Found")
	want(t, "a wrong method", a.code(405, http.MethodPost, "/info", object{})["detail"], "Method Not Allowed")
	want(t, "a wrong method", a.code(405, http.MethodPost, "/status-env", object{"env_id": 0})["detail"],
		"Method Not Allowed")
	if r := a.send(http.MethodHead, "/info", nil); r.code != 405 {
		t.Errorf("HEAD answers %d, expected 405", r.code)
	}
	a.code(422, http.MethodGet, "/status-env", nil)
	a.code(422, http.MethodGet, "/status-env?env_id=0", nil)
}

func testValidation(t *testing.T, a *api) {
	a.trainer(8)
	for name, c := range map[string]struct {
		body string
		kind string
	}{
		"no JSON":            {`{"tokens":`, "json_invalid"},
		"a list":             {`[1]`, "model_attributes_type"},
		"missing masks":      {`{"tokens":[[1]],"scores":[1]}`, "missing"},
		"a text for tokens":  {`{"tokens":"x","masks":[[1]],"scores":[1]}`, "list_type"},
		"flat tokens":        {`{"tokens":[1],"masks":[[1]],"scores":[1]}`, "list_type"},
		"a fraction":         {`{"tokens":[[1.5]],"masks":[[1]],"scores":[1]}`, "int_from_float"},
		"a text for an id":   {`{"tokens":[["a"]],"masks":[[1]],"scores":[1]}`, "int_parsing"},
		"null scores":        {`{"tokens":[[1]],"masks":[[1]],"scores":null}`, "list_type"},
		"a text for a score": {`{"tokens":[[1]],"masks":[[1]],"scores":["x"]}`, "float_parsing"},
		"no dictionary":      {`{"tokens":[[1]],"masks":[[1]],"scores":[1],"group_overrides":[1]}`, "dict_type"},
		"no message":         {`{"tokens":[[1]],"masks":[[1]],"scores":[1],"messages":[[{"role":"user"}]]}`, "value_error"},
	} {
		r := a.send(http.MethodPost, "/scored_data", []byte(c.body))
		var out struct {
			Detail []struct {
				Type, Msg string
				Loc       []any
			}
		}
		if err := json.Unmarshal(r.body, &out); err != nil || r.code != 422 || len(out.Detail) == 0 ||
			out.Detail[0].Type != c.kind || out.Detail[0].Loc[0] != "body" || out.Detail[0].Msg == "" {
			t.Errorf("%s: answered %d %s, expected an error of type %s", name, r.code, r.body, c.kind)
		}
	}
	body := encode(t, group(1, 8))
	for name, contentType := range map[string]string{"no content type": "", "text": "text/plain"} {
		if r := a.send(http.MethodPost, "/scored_data", body, "Content-Type", contentType); r.code != 422 {
			t.Errorf("%s: answered %d, expected 422", name, r.code)
		}
	}
	for _, contentType := range []string{"application/json; charset=utf-8", "application/vnd.x+json"} {
		if r := a.send(http.MethodPost, "/scored_data", body, "Content-Type", contentType); r.code != 200 {
			t.Errorf("%s: answered %d, expected 200", contentType, r.code)
		}
	}
	if r := a.send(http.MethodPost, "/scored_data", []byte{}, "Content-Type", "application/json"); r.code != 422 {
		t.Errorf("an empty body: answered %d, expected 422", r.code)
	}
	want(t, "what was accepted", a.get("/status")["queue_size"], 2)
}

func testCoercion(t *testing.T, a *api) {
	a.trainer(1)
	r := a.send(http.MethodPost, "/scored_data", []byte(
		`{"tokens":[["7",1.0,true,2]],"masks":[[7.0,"-100",true,2]],"scores":["1.5"],"tools":"dropped"}`))
	want(t, "the answer", string(r.body), `{"status":"received"}`)
	g := a.get("/batch")["batch"].([]any)[0].(object)
	want(t, "tokens", g["tokens"], "[[7 1 1 2]]")
	want(t, "masks", g["masks"], "[[7 -100 1 2]]")
	want(t, "scores", g["scores"], "[1.5]")
	if _, ok := g["tools"]; ok {
		t.Error("an unknown field is passed on, expected it to be dropped")
	}
}

func testFields(t *testing.T, a *api) {
	a.trainer(2)
	more := object{"advantages": [][]float64{{.1, .2, .3}, {.4, .5, .6}}, "ref_logprobs": [][]float64{{1, -.5, -.25},
		{1, -1, -2}},
		"inference_logprobs": [][]float64{{1, -.125, -1e-7}, {1, -3, -4}}, "generation_params": object{"temperature": .7,
			"stop": []string{"a"}},
		"messages": [][]object{{{"role": "user", "content": "hé \"x\" \n", "reward": nil}},
			{{"role": "tool", "content": []any{object{"type": "text"}}, "extra": 1}}},
		"overrides": []object{{"set_advantage_to_zero": true}, {}}, "group_overrides": object{"sft": true},
		"images":            []any{"x", nil},
		"distill_token_ids": [][][]int{{{1, 2}, {3}, {}}, {{4}, {5}, {6}}}, "distill_logprobs": [][][]float64{{{-1, -2}, {-3},
			{}}, {{-4}, {-5}, {-6}}}, "env_id": 77}
	sent := group(5, 2, more)
	a.post("/scored_data", sent)
	got := a.get("/batch")["batch"].([]any)[0].(object)
	var expected object
	if err := json.Unmarshal(encode(t, sent), &expected); err != nil {
		t.Fatal(err)
	}
	for k, v := range expected {
		want(t, k, got[k], v)
	}
	a.post("/scored_data", group(6, 2))
	got = a.get("/batch")["batch"].([]any)[0].(object)
	for k := range more {
		if v, ok := got[k]; !ok || v != nil {
			t.Errorf("%s is %v (%v), expected an explicit null", k, v, ok)
		}
	}
}

func testEmptyLists(t *testing.T, a *api) {
	a.trainer(2)
	a.post("/scored_data", group(1, 2, object{"advantages": []int{}, "ref_logprobs": []int{},
		"inference_logprobs": []int{}, "messages": []int{},
		"overrides": []int{}, "group_overrides": object{}, "generation_params": object{}, "images": []int{}}))
	want(t, "the batch", marks(t, a.get("/batch")), []int{1})
}

func testAnonymous(t *testing.T, a *api) {
	a.trainer(4)
	a.env("e", 4)
	want(t, "a group without an environment", a.post("/scored_data", group(1, 2))["status"], "received")
	want(t, "a group of an unknown environment", a.post("/scored_data", group(2, 2, from(9)))["status"], "received")
	want(t, "the batch", marks(t, a.get("/batch")), []int{1, 2})
}

func testList(t *testing.T, a *api) {
	a.trainer(4)
	e := a.env("e", 2)
	want(t, "an empty list", a.post("/scored_data_list", []int{}), object{"status": "received", "groups_processed": 0})
	want(t, "a list", a.post("/scored_data_list", []object{group(1, 2, from(e)), group(2, 2, from(e))}),
		object{"status": "received", "groups_processed": 2})
	want(t, "a list with a small group", a.post("/scored_data_list", []object{group(3, 1, from(e))}),
		object{"status": "received", "groups_processed": 1, "buffered": 1, "last_buffer_size": 1})
	want(t, "the batch", marks(t, a.get("/batch")), []int{1, 2})
}

func testListAtomic(t *testing.T, a *api) {
	a.trainer(4)
	a.refused("/scored_data_list", []object{group(1, 2), {"tokens": 1}})
	a.refused("/scored_data_list", group(1, 2))
	want(t, "the queue", a.get("/status")["queue_size"], 0)
}

func testGzip(t *testing.T, a *api) {
	a.trainer(4)
	body := encode(t, group(1, 2))
	for _, encoding := range []string{"gzip", "x-gzip, identity"} {
		if r := a.send(http.MethodPost, "/scored_data", zip(body), "Content-Encoding", encoding); r.code != 200 {
			t.Errorf("%s: answered %d %s", encoding, r.code, r.body)
		}
	}
	half := len(body) / 2
	if r := a.send(http.MethodPost, "/scored_data", append(zip(body[:half]), zip(body[half:])...), "Content-Encoding",
		"gzip"); r.code != 200 {
		t.Errorf("a body of two members: answered %d %s", r.code, r.body)
	}
	if r := a.send(http.MethodPost, "/scored_data", body, "Content-Encoding", "gzip"); r.code != 400 ||
		string(r.body) != "Invalid gzip payload" {
		t.Errorf("a body that is no gzip: answered %d %s", r.code, r.body)
	}
	if r := a.send(http.MethodPost, "/scored_data", body, "Content-Encoding", "identity"); r.code != 200 {
		t.Errorf("identity: answered %d %s", r.code, r.body)
	}
	want(t, "the queue", a.get("/status")["queue_size"], 4)
}

func testGzipReplies(t *testing.T, a *api) {
	a.trainer(64)
	for i := range 8 {
		a.post("/scored_data", group(i, 8))
	}
	r := a.send(http.MethodGet, "/batch", nil, "Accept-Encoding", "gzip, deflate")
	text := r.body
	if r.header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil || len(marks(t, out)) != 8 {
		t.Errorf("the batch is %s (%v)", text, err)
	}
	if r := a.send(http.MethodGet, "/info", nil, "Accept-Encoding", "gzip"); r.header.Get("Content-Encoding") != "" {
		t.Error("a small reply is compressed")
	}
}

func testBigIntegers(t *testing.T, a *api) {
	a.trainer(1)
	r := a.send(http.MethodPost, "/scored_data", []byte(`{"tokens":[[2147483647]],"masks":[[-100]],"scores":[0]}`))
	want(t, "the answer", r.code, 200)
	if b := a.send(http.MethodGet, "/batch", nil); !bytes.Contains(b.body, []byte("2147483647")) {
		t.Errorf("the batch %s lost digits", b.body)
	}
}

func testTrailingSlash(t *testing.T, a *api) {
	if r := a.send(http.MethodGet, "/info/", nil); r.code != http.StatusTemporaryRedirect ||
		!strings.HasSuffix(r.header.Get("Location"), "/info") {
		t.Errorf("answered %d to %q, expected a redirect", r.code, r.header.Get("Location"))
	}
}

func testMessages(t *testing.T, a *api) {
	a.trainer(1)
	for _, messages := range []string{`null`, `[]`, `[[]]`, `[[{"role":"assistant","content":"x"}]]`,
		`[[{"role":5,"content":null}]]`,
		`[[{"role":"user","content":"x","reward":0.5,"tool_calls":[{"id":"1"}]}]]`} {
		body := `{"tokens":[[1]],"masks":[[1]],"scores":[1],"messages":` + messages + `}`
		if r := a.send(http.MethodPost, "/scored_data", []byte(body)); r.code != 200 {
			t.Errorf("messages %s: answered %d %s", messages, r.code, r.body)
		}
	}
	for _, messages := range []string{`5`, `[[{"content":"x"}]]`, `[[{"role":"user"}]]`} {
		body := `{"tokens":[[1]],"masks":[[1]],"scores":[1],"messages":` + messages + `}`
		if r := a.send(http.MethodPost, "/scored_data", []byte(body)); r.code != 422 && r.code != 500 {
			t.Errorf("messages %s: answered %d %s", messages, r.code, r.body)
		}
	}
}
