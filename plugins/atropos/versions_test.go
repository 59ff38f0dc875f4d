package atropos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"

	"github.com/recipe-rl/recipe/sdk"
)

// engine streams completions of eight tokens, each the digit of the weights that sampled it. In the middle of each it
// has the weights updated while there are new ones.
type engine struct {
	mu       sync.Mutex
	version  int
	loaded   chan struct{}      // of the update in progress
	halfway  chan *updateWanted // requested by an answer that is half sent
	complete chan struct{}      // closed after the last update
	sending  sync.Mutex
	gateway  atomic.Pointer[gateway.Gateway]
}

// updateWanted is an update in the middle of an answer.
type updateWanted struct {
	loaded chan struct{} // closed when the engine has loaded the weights
	proven chan struct{} // closed when the gateway reports the version
}

func (e *engine) load(v int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = v
	close(e.loaded)
}

// ask requests an update and waits until its weights are loaded; nil when there are no more.
func (e *engine) ask(ctx context.Context) *updateWanted {
	u := &updateWanted{loaded: make(chan struct{}), proven: make(chan struct{})}
	select {
	case e.halfway <- u:
	case <-e.complete:
		return nil
	case <-ctx.Done():
		return nil
	}
	await(ctx, u.loaded)
	return u
}

func await(ctx context.Context, c <-chan struct{}) {
	select {
	case <-c:
	case <-ctx.Done():
	}
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		N      int  `json:"n"`
		Stream bool `json:"stream"`
	}
	read(r, &q)
	if !q.Stream {
		http.Error(w, `{"error":{"message":"this engine only streams"}}`, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	var update *updateWanted
	for k := range 8 {
		e.sending.Lock()
		before := e.gateway.Load().Traffic().Sign
		for i := range max(1, q.N) {
			e.mu.Lock()
			digit := itoa(e.version)
			e.mu.Unlock()
			end := "null"
			if k == 7 {
				end = `"length"`
			}
			_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":%d,"text":%q,"token_ids":[%d],"logprobs":{"token_logprobs":[-0.5]},"finish_reason":%s}]}`+"\n\n", i, digit, idsOf(digit)[0], end)
		}
		_ = out.Flush()
		// Weights change only when the gateway has recorded what the previous ones sampled.
		for e.gateway.Load().Traffic().Sign.Equal(before) && r.Context().Err() == nil {
			time.Sleep(100 * time.Microsecond)
		}
		e.sending.Unlock()
		switch {
		case k == 3:
			update = e.ask(r.Context())
		case k == 4 && update != nil: // this token may be newer than the version that the gateway reports
			await(r.Context(), update.proven)
		}
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

// An unmodified environment calls /generate without streaming, weights change before the answer is complete, and its
// groups give a lower bound of each token's version.
func TestRealGroupsCarryTokenVersions(t *testing.T) {
	t.Parallel()
	e := &engine{halfway: make(chan *updateWanted), complete: make(chan struct{})}
	server := httptest.NewServer(e)
	defer server.Close()
	g, err := gateway.New(gateway.Config{Address: "127.0.0.1:0", Token: "key", Update: func(_ context.Context,
		_ []gateway.Replica, u gateway.WeightUpdate) error {
		e.load(int(u.Version))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.gateway.Store(g)
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer serving.Wait()
	defer cancel()
	serving.Go(func() { _ = g.Serve(ctx) })
	if err := g.SetReplicas([]gateway.Replica{{ID: "0", URL: server.URL}}); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(ctx, "0", 0); err != nil {
		t.Fatal(err)
	}
	if err := g.ExpectUpdates(gateway.ModeKeep); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	serving.Go(func() {
		defer close(e.complete)
		for v := int64(1); v <= 9; v++ { // a version is a digit
			var wanted *updateWanted
			select {
			case wanted = <-e.halfway:
			case <-ctx.Done():
				return
			}
			e.mu.Lock()
			e.loaded = wanted.loaded
			e.mu.Unlock()
			if _, err := g.UpdateWeights(ctx, gateway.WeightUpdate{Weights: sdk.Weights{Version: v},
				Mode: gateway.ModeKeep}); err != nil && ctx.Err() == nil {
				t.Errorf("update to version %d: %v", v, err)
			}
			close(wanted.proven)
		}
	})
	list := rolled(t, w, 3, func(c *Config) {
		c.Inference, _ = refs(g.URL(), w.URL)
		c.KeepSameScores, c.Config = true, map[string]any{"max_new_tokens": 8}
	})
	mixed := 0
	for _, group := range list {
		text, _ := json.Marshal(group)
		var got struct {
			Tokens    [][]int `json:"tokens"`
			Masks     [][]int `json:"masks"`
			Range     [2]int  `json:"policy_version"`
			Overrides []struct {
				Versions []gateway.VersionSpan `json:"policy_versions"`
			} `json:"overrides"`
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if got.Range[0] == got.Range[1] {
			continue
		}
		mixed++
		if len(got.Overrides) != len(got.Tokens) {
			t.Fatalf("a group of versions %v has no versions of its tokens: %s", got.Range, text)
		}
		for i, o := range got.Overrides {
			at := 0
			for got.Masks[i][at] == -100 {
				at++
			}
			for _, s := range o.Versions {
				if s.Start != at {
					t.Fatalf("sequence %d: the versions %v begin or go on at the wrong token; the answer begins at %d", i,
						o.Versions, at)
				}
				for ; at < s.End; at++ {
					if digit := int(charactersOf(got.Tokens[i][at : at+1])[0] - '0'); digit < s.Version || s.Version < got.Range[0] ||
						digit > got.Range[1] {
						t.Errorf("a token of version %d is noted as of %d, in a group of %v", digit, s.Version, got.Range)
					}
				}
			}
			if at != len(got.Tokens[i]) {
				t.Errorf("sequence %d: the versions %v leave out tokens of %d", i, o.Versions, len(got.Tokens[i]))
			}
		}
	}
	if mixed == 0 {
		t.Errorf("no group spans an update: %v", list)
	}
}

// What a launcher makes of groups and answers of all shapes; any Python interpreter is sufficient.
func TestVersionsOfTokens(t *testing.T) {
	t.Parallel()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const atropos = `{"prompt_token_ids":[1,2],"token_ids":[[5,6,7],[5,8]],"policy_versions":[[{"version":3,"start":0,"end":2},{"version":4,"start":2,"end":3}],[{"version":3,"start":0,"end":2}]]}`
	for name, c := range map[string]struct {
		group, want string
		answers     []string // oldest, newest, reply, request
	}{
		"one version": {`{"tokens":[[1,2,5,6,7]]}`, `{"tokens":[[1,2,5,6,7]],"policy_version":[3,3]}`,
			[]string{`[3,3,` + atropos + `,null]`}},
		"no stamp": {`{"tokens":[[1]]}`, `{"tokens":[[1]]}`, []string{`[null,null,` + atropos + `,null]`}},
		"several": {`{"tokens":[[1,2,5,6,7],[1,2,5,8]]}`, `[[[3,2,4],[4,4,5]],[[3,2,4]]]`,
			[]string{`[3,4,` + atropos + `,null]`}},
		"cut": {`{"tokens":[[1,2,5]]}`, `[[[3,2,3]]]`, []string{`[3,4,` + atropos + `,null]`}},
		"nothing but prompt": {`{"tokens":[[1,2]]}`, `{"tokens":[[1,2]],"policy_version":[3,4]}`,
			[]string{`[3,4,` + atropos + `,null]`}},
		"not its own": {`{"tokens":[[1,2,9,9,9],[1,2,5,8]]}`, `[null,[[3,2,4]]]`,
			[]string{`[3,4,` + atropos + `,null]`}},
		"more after it": {`{"tokens":[[1,2,5,8,30,31]]}`, `[[[3,2,4]]]`, []string{`[3,4,` + atropos + `,null]`}},
		"two turns of one version each": {`{"tokens":[[1,5,20,21,6,7]]}`, `[[[3,1,2],[4,4,6]]]`, []string{
			`[3,3,{"prompt_token_ids":[1],"token_ids":[[5]]},null]`,
			`[4,4,{"prompt_token_ids":[1,5,20,21],"token_ids":[[6,7]]},null]`}},
		"the same twice": {`{"tokens":[[1,5]]}`, `[[[3,1,2]]]`,
			[]string{`[4,4,{"prompt_token_ids":[1],"token_ids":[[5]]},null]`,
				`[3,3,{"prompt_token_ids":[1],"token_ids":[[5]]},null]`}},
		"sglang": {`{"tokens":[[1,5,6],[1,7]]}`, `[[[3,1,2],[4,2,3]],[[4,1,2]]]`, []string{
			`[3,4,[{"output_ids":[5,6],"meta_info":{"policy_versions":[{"version":3,"start":0,"end":1},{"version":4,"start":1,"end":2}]}},{"output_ids":[7],"meta_info":{"policy_versions":[{"version":4,"start":0,"end":1}]}}],{"input_ids":[1]}]`}},
		"sglang, one": {`{"tokens":[[1,5,6]]}`, `[[[3,1,3]]]`,
			[]string{`[3,4,{"output_ids":[5,6],"meta_info":{}},{"input_ids":[1]}]`}},
		"not read": {`{"tokens":[[1,2,5,6,7]]}`, `{"tokens":[[1,2,5,6,7]],"policy_version":[3,4]}`,
			[]string{`[3,4,null,null]`}},
		"something else": {`{"tokens":[[1,5]]}`, `{"tokens":[[1,5]],"policy_version":[3,4]}`,
			[]string{`[3,4,{"x":1},null]`, `[3,4,[1,2],null]`, `[3,4,"x",{"input_ids":1}]`}},
		"a version of its own": {`{"tokens":[[1,2,5,8]],"policy_version":9}`, `[[[3,2,4]]]`,
			[]string{`[3,4,` + atropos + `,null]`}},
		"overrides of its own": {`{"tokens":[[1,2,5,8]],"overrides":[{"temperature":2}]}`, `[[[3,2,4]]]`,
			[]string{`[3,4,` + atropos + `,null]`}},
		"overrides that misfit": {`{"tokens":[[1,2,5,8]],"overrides":{"x":1}}`,
			`{"tokens":[[1,2,5,8]],"overrides":{"x":1},"policy_version":[3,4]}`, []string{`[3,4,` + atropos + `,null]`}},
		"overrides that are None": {`{"tokens":[[1,2,5,8],[9]],"overrides":[null,null]}`, `[[[3,2,4]],null]`,
			[]string{`[3,4,` + atropos + `,null]`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const program = `
import json, sys
sys.path.insert(0, "launcher")
import recipe_versions as v
class Http:
    pass
group, answers, spans = json.loads(sys.argv[1]), [], sys.argv[3] == "spans"
for low, high, reply, request in json.loads(sys.argv[2]):
    answer = Http()
    answer._body = None if reply is None else json.dumps(reply).encode()
    answers.append(v.Answer({} if low is None else dict(zip(v.HEADERS, (str(low), str(high)))), answer, request))
own = json.dumps(group.get("overrides"))
v.mark(group, answers)
if spans:
    if "temperature" in own:
        assert group["overrides"][0]["temperature"] == 2
    lists = [(o or {}).get("policy_versions") for o in group["overrides"]]
    group = [x and [[s["version"], s["start"], s["end"]] for s in x] for x in lists]
print(json.dumps(group))`
			mode := "group"
			if strings.HasPrefix(c.want, "[") {
				mode = "spans"
			}
			cmd := exec.CommandContext(t.Context(), interpreter, "-c", program, c.group, "["+strings.Join(c.answers, ",")+
				"]", mode)
			var said strings.Builder // apart: where python3 is a script, its shell may warn of the locale
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, said.String())
			}
			var got, want any
			if json.Unmarshal(out, &got) != nil || json.Unmarshal([]byte(c.want), &want) != nil {
				t.Fatalf("%s, want %s", out, c.want)
			}
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if string(a) != string(b) {
				t.Errorf("%s, want %s", a, b)
			}
		})
	}
}
