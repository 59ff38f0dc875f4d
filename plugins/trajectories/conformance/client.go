// Package conformance is a black-box suite for the contract of the trajectory API: it uses HTTP only, so it runs
// against recipe's server and against the original run-api alike. Contract holds what both must do, Promises what
// recipe's server does beyond it, and where it avoids the original's defects.
package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// api is a server under test.
type api struct {
	t   *testing.T
	url string
}

// object is a decoded JSON object.
type object = map[string]any

// answer is a reply with its whole body.
type answer struct {
	code   int
	body   []byte
	header http.Header
}

// send makes a request with a raw body.
func (a *api) send(method, path string, body []byte, headers ...string) answer {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Del(headers[i])
		if headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableCompression: true,
		DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply, err := client.Do(request)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{reply.StatusCode, text, reply.Header}
}

// call sends a value as JSON and decodes the reply, whatever its status.
func (a *api) call(method, path string, in any) (int, object) {
	a.t.Helper()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			a.t.Fatal(err)
		}
	}
	r := a.send(method, path, body)
	var out object
	if err := json.Unmarshal(r.body, &out); err != nil {
		a.t.Fatalf("%s %s answered %d %q, which is no JSON object", method, path, r.code, r.body)
	}
	return r.code, out
}

// ok is call for requests that must succeed.
func (a *api) ok(method, path string, in any) object {
	a.t.Helper()
	code, out := a.call(method, path, in)
	if code != http.StatusOK {
		a.t.Fatalf("%s %s with %v answered %d %v", method, path, in, code, out)
	}
	return out
}

func (a *api) get(path string) object          { a.t.Helper(); return a.ok(http.MethodGet, path, nil) }
func (a *api) post(path string, in any) object { a.t.Helper(); return a.ok(http.MethodPost, path, in) }
func (a *api) statusEnv(id int) object {
	a.t.Helper()
	return a.ok(http.MethodGet, "/status-env", object{"env_id": id})
}
func (a *api) refused(path string, in any) object {
	a.t.Helper()
	return a.code(422, http.MethodPost, path, in)
}

func (a *api) code(want int, method, path string, in any) object {
	a.t.Helper()
	code, out := a.call(method, path, in)
	if code != want {
		a.t.Errorf("%s %s with %v answered %d %v, expected %d", method, path, in, code, out, want)
	}
	return out
}

// reset empties the server between tests.
func (a *api) reset() {
	a.t.Helper()
	if r := a.send(http.MethodGet, "/reset_data", nil); r.code != http.StatusOK || string(r.body) != "Reset successful" {
		a.t.Fatalf("/reset_data answered %d %q", r.code, r.body)
	}
}

// trainer registers a trainer and asks for a first batch, after which environments may register.
func (a *api) trainer(batchSize int) {
	a.t.Helper()
	a.post("/register", registration(batchSize))
	a.get("/batch")
}

func registration(batchSize int) object {
	return object{"wandb_group": "g", "wandb_project": "p", "batch_size": batchSize, "max_token_len": 512,
		"checkpoint_dir":           "/ckpt",
		"save_checkpoint_interval": 10, "starting_step": 0, "num_steps": 100}
}

// env registers an environment and returns its id.
func (a *api) env(name string, groupSize int, more ...object) int {
	a.t.Helper()
	in := object{"max_token_length": 512, "desired_name": name, "weight": 1.0, "group_size": groupSize}
	for _, m := range more {
		for k, v := range m {
			in[k] = v
		}
	}
	out := a.post("/register-env", in)
	if out["status"] != "success" {
		a.t.Fatalf("registering environment %s: %v", name, out)
	}
	return int(out["env_id"].(float64))
}

// group makes a group whose token ids contain a mark, so that it can be recognized in a batch.
func group(mark, size int, more ...object) object {
	tokens, masks, scores := make([][]int, size), make([][]int, size), make([]float64, size)
	for i := range size {
		tokens[i], masks[i], scores[i] = []int{mark, i, 7}, []int{-100, i, 7}, float64(i)
	}
	out := object{"tokens": tokens, "masks": masks, "scores": scores}
	for _, m := range more {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func from(env int) object { return object{"env_id": env} }

// marks lists the groups of a batch by their marks; nil when there was no batch.
func marks(t *testing.T, batch object) []int {
	t.Helper()
	list, ok := batch["batch"].([]any)
	if !ok {
		return nil
	}
	out := []int{}
	for _, g := range list {
		out = append(out, int(g.(object)["tokens"].([]any)[0].([]any)[0].(float64)))
	}
	return out
}

func zip(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// want compares as text, which treats 1 and 1.0 alike after decoding.
func want(t *testing.T, what string, got, expected any) {
	t.Helper()
	if g, e := fmt.Sprint(got), fmt.Sprint(expected); g != e {
		t.Errorf("%s is %s, expected %s", what, g, e)
	}
}
