package group

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// sample writes a group the way Python's json does.
func sample(sequences, tokens int, logprobs bool) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var t, m, l, s []string
	for range sequences {
		var a, b, c []string
		for i := range tokens {
			id := fmt.Sprint(rng.IntN(150000))
			mask := id
			if i < tokens/4 {
				mask = "-100"
			}
			a, b, c = append(a, id), append(b, mask), append(c, fmt.Sprint(-rng.ExpFloat64()))
		}
		t = append(t, "["+strings.Join(a, ", ")+"]")
		m = append(m, "["+strings.Join(b, ", ")+"]")
		l = append(l, "["+strings.Join(c, ", ")+"]")
		s = append(s, fmt.Sprint(rng.Float64()))
	}
	out := `{"tokens": [` + strings.Join(t, ", ") + `], "masks": [` + strings.Join(m, ", ") + `], "scores": [` +
		strings.Join(s, ", ") + `]`
	if logprobs {
		out += `, "inference_logprobs": [` + strings.Join(l, ", ") + `]`
	}
	return []byte(out + `, "env_id": 0}`)
}

// isFast reports whether the fast reader accepts a body.
func isFast(body []byte) bool {
	var r Reader
	g, end := r.fast(body, 0)
	return g != nil && end == len(body)
}

func TestTheFastReaderTakesWhatEnvironmentsSend(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		string(sample(8, 64, true)),
		`{"tokens":[[1,2],[3]],"masks":[[-100,2],[3]],"scores":[1.0,-0.5e-3]}`,
		`{ "scores" : [ 1 ] , "masks" : [ [ ] ], "tokens": [[]] , "env_id": null, "advantages": [], "overrides": [{}], "messages": [[{"role": "user", "content": "h\u00e9 \"\\"}]], "images": [null, 1.5, true, {"a": "é"}], "unknown": {"x": [1]} }`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"task":{"v":1}}`,
		`{"tokens":[[1]],"masks":[[1]],"scores":[1],"distill_token_ids":[[[1,2]]],"distill_logprobs":[[[-1.5,0]]],"policy_version":[3,4]}`,
	} {
		if !isFast([]byte(body)) {
			t.Errorf("left to the exact reader: %.80s", body)
		}
	}
}

// A task is kept apart from the group's JSON, wherever it stands, and only one that is an object and of bounded size.
//
//docs:rescoring.md The trajectory API keeps the task in the record and gives it to no trainer
func TestATaskIsForTheRecordAlone(t *testing.T) {
	t.Parallel()
	const before = `{"tokens":[[1]],"masks":[[1]],"scores":[1]`
	task := `{"v":1,"data":{"a":[1,"}"]}}`
	for name, body := range map[string]string{
		"last": before + `,"task":` + task + `}`, "among others": before + `,"task":` + task + `,"env_id":3}`,
		"first":         `{"task":` + task + `,` + before[1:] + `}`,
		"with unknowns": before + `,"x":1 , "task": ` + task + ` }`,
		"twice":         before + `,"task":{"v":9},"task":` + task + `}`,
		"none":          before + `}`, "a text": before + `,"task":"math"}`,
		"too large": before + `,"task":{"v":"` + strings.Repeat("x", maxTask) + `"}}`,
	} {
		var r Reader
		g, err := r.Parse([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := task
		if name == "none" || name == "a text" || name == "too large" {
			want = ""
		}
		if string(g.Task) != want || strings.Contains(string(g.JSON), "task") || !json.Valid(g.JSON) {
			t.Errorf("%s: the task is %q, the group %s", name, g.Task, g.JSON)
		}
		recorded := bytes.Join(g.Recorded(), nil)
		if !json.Valid(recorded) || strings.Contains(string(recorded), `"task":`+task) != (want != "") {
			t.Errorf("%s: recorded as %s", name, recorded)
		}
	}
}

func TestBothReadersAgree(t *testing.T) {
	t.Parallel()
	for _, body := range seeds() {
		agree(t, []byte(body))
	}
}

// agree compares the readers: the fast one accepts nothing that the exact one refuses, with the same result.
func agree(t *testing.T, body []byte) {
	t.Helper()
	exact, err := Parse(bytes.Clone(body))
	var r Reader
	in := append(bytes.Clone(body), "guard"...)[:len(body)]
	fast, end := r.fast(in, 0)
	if fast == nil || end != len(body) {
		return
	}
	if err != nil {
		t.Fatalf("the fast reader takes what the exact one refuses (%v): %q", err, body)
	}
	r.finish(fast, 0, end, true)
	if !json.Valid(fast.JSON) {
		t.Fatalf("not JSON: %q from %q", fast.JSON, body)
	}
	var a, b any
	if json.Unmarshal(fast.JSON, &a) != nil || json.Unmarshal(exact.JSON, &b) != nil || !reflect.DeepEqual(a, b) {
		t.Fatalf("the readers disagree on %q:\n%s\n%s", body, fast.JSON, exact.JSON)
	}
	fast.JSON, exact.JSON = nil, nil
	if !reflect.DeepEqual(fast, exact) {
		t.Fatalf("the readers disagree on %q: %+v, %+v", body, fast, exact)
	}
}

func seeds() []string {
	good := `{"tokens":[[1,2],[3,4]],"masks":[[-100,2],[3,4]],"scores":[0.5,1]`
	out := []string{good + `}`, string(sample(2, 3, true))}
	for _, more := range []string{
		`"env_id":3`, `"env_id":-1`, `"env_id":null`, `"env_id":99999999999999999999`, `"env_id":"7"`,
		`"env_id":1.0`, `"env_id":1.5`,
		`"policy_version":3`, `"policy_version":[1,2]`, `"policy_version":[2,1]`, `"policy_version":-1`,
		`"policy_version":null`, `"policy_version":[]`, `"policy_version":[1,2,3]`,
		`"advantages":[[1],[2]]`, `"advantages":[]`, `"advantages":[[1]]`, `"inference_logprobs":[[1.0,-2],[1,-0.5e-10]]`,
		`"inference_logprobs":[[1],[2]]`, `"inference_logprobs":[[],[1,2]]`,
		`"ref_logprobs":[[1e400,1],[1,1]]`, `"ref_logprobs":[[NaN,1],[1,1]]`, `"ref_logprobs":[[01,1],[1,1]]`,
		`"ref_logprobs":[[1.,1],[1,1]]`, `"ref_logprobs":[["1",true],[1,1]]`,
		`"messages":[[{"role":"user","content":"x"}]]`, `"messages":[[{"role":"user"}]]`, `"messages":[[1]]`,
		`"messages":[[{"r\u006fle":1,"content":2}]]`, `"messages":null`, `"messages":[[]]`,
		`"images":{"a":[1,{"b":"é\ud83d\ude00"}]}`, `"images":Infinity`, `"images":"\x"`, "\"images\":\"\xff\"",
		`"images":1e99`,
		`"overrides":[{},{"a":1}]`, `"overrides":[{},{"rollout":0}]`, `"overrides":[{"a":{"rollout":0}},{"r\u006fllout":0}]`,
		`"overrides":[1,2]`, `"overrides":[{}]`, `"group_overrides":{}`, `"group_overrides":[]`,
		`"generation_params":{"t":1.5}`,
		`"masks":[[1]]`, `"inference_logprobs":[[-0.12345678901234567890, -1.5],[0.1, -0.0]]`,
		`"unknown":1`, `"tok\u0065ns":1`, `"tokens":[[9]]`, `"distill_token_ids":[[[1],[2]],[[3],[]]]`,
		`"distill_logprobs":[[[1.5]],[]]`,
		`"task":{"v":1}`, `"task": {"v":1} `, `"task":{"v":1},"task":{"v":2}`, `"task":{"v":1},"env_id":1`,
		`"unknown":1,"task":{"v":1}`, `"t\u0061sk":{"v":1}`, `"task":"math"`, `"task":null`, `"task":{"v":01}`,
	} {
		out = append(out, good+","+more+"}")
	}
	for _, masks := range []string{`[[1, 2, 3]]`, `[[-100, 2, 3]]`, `[[-100, -100, 3]]`, `[[-100, -100, -100]]`,
		`[[2, 3]]`, `[[-100, 23]]`, `[[-100, 100, 3]]`,
		`[[, 2, 3]]`, `[[-100,  2, 3]]`, `[[1, 2, 3 ]]`, `[[-100, 3, 3]]`, `[[-100, ]]`, `[[1, 2, 3], [1, 2, 3]]`, `[[]]`} {
		out = append(out, `{"tokens": [[1, 2, 3]], "masks": `+masks+`, "scores": [1]}`, `{"tokens": [[12, 2, 3]], "masks": `+
			masks+`, "scores": [1]}`, `{"masks": `+masks+`, "tokens": [[1,2, 3]], "scores": [1]}`)
	}
	return append(out, []string{``, `[]`, `{}`, `null`, `{"tokens":[],"masks":[],"scores":[]}`, good, good + `}}`,
		good + `,}`, `{"tokens":[["1",true,2.0]],"masks":[[1,2,3]],"scores":["1.5"]}`}...)
}

func FuzzReaders(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		agree(t, body)
		// Whatever is accepted is valid JSON for the standard library.
		var r Reader
		if g, err := r.Parse(bytes.Clone(body)); err == nil && !json.Valid(g.JSON) {
			t.Fatalf("accepted %q as %q, which is not JSON", body, g.JSON)
		}
	})
}

func FuzzSkipValue(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"\u00e9\n",true,null]}`, `"é"`, `-0`, `01`, `[1,]`, `{"a"}`,
		"\"\x01\"", `1e5`, `-`, `""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if end := skipValue(b, 0, 0); end == len(b) && !json.Valid(b) {
			t.Fatalf("walked over %q, which is not JSON", b)
		}
		_, err := parse(b)
		if end := skipValue(b, 0, 0); end == len(b) && err != nil {
			t.Fatalf("walked over %q, which the exact reader refuses: %v", b, err)
		}
	})
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkReader(b *testing.B) {
	for _, tokens := range []int{512, 4096} {
		body := sample(8, tokens, true)
		b.Run(fmt.Sprintf("8x%d", tokens), func(b *testing.B) {
			var r Reader
			b.SetBytes(int64(len(body)))
			work := make([]byte, len(body), len(body)+512)
			before := cpu()
			for b.Loop() {
				copy(work, body)
				if _, err := r.Parse(work); err != nil {
					b.Fatal(err)
				}
			}
			// Processor time, because the machine may be busy.
			b.ReportMetric(float64(len(body))*float64(b.N)/1e6/(cpu()-before).Seconds(), "MB/cpu-s")
		})
	}
}

// BenchmarkAlternatives is the cost of the same check with libraries, without the checks of lengths and types.
func BenchmarkAlternatives(b *testing.B) {
	body := sample(8, 512, true)
	for name, valid := range map[string]func() bool{
		"encoding_json": func() bool { return json.Valid(body) },
		"jsontext":      func() bool { return jsontext.Value(body).IsValid() },
	} {
		b.Run(name, func(b *testing.B) {
			before := cpu()
			for b.Loop() {
				if !valid() {
					b.Fatal("not valid")
				}
			}
			b.ReportMetric(float64(len(body))*float64(b.N)/1e6/(cpu()-before).Seconds(), "MB/cpu-s")
		})
	}
}
