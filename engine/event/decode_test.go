package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// filled is an event with all fields that a scan reads.
func filled() Event {
	return Event{V: 1, Seq: 12, Time: time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC), Type: Metrics,
		Address: `inference.vllm.p["a"]`, Cursor: 7, BlockAttempt: 2, Phase: "ready", Message: "<a>\n\"é\" \\ \u2028",
		Remedy: "r", Level: "info", Stream: "stdout", Host: "n1", State: Working, On: "trainer.*.*", Step: 123456789012345678,
		Total: 10, Unit: "steps", Metrics: map[string]float64{"a/b": -1.5e-300, "c": 0, "é": 1e21}, Path: "/p", Format: "f",
		Version: 3, Transport: "t", Seconds: 0.25, Inference: "i", Environment: "e", Prompt: "p", Completion: "c",
		Score: -1, Name: "n", TraceID: "t", SpanID: "s", ParentID: "q", Attributes: map[string]string{"k": "\tv"}, Repeats: 4}
}

func text(t testing.TB, e Event) string {
	t.Helper()
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// What Log writes most often is not left to package json, which takes five times as long.
func TestScanReadsWhatLogWrites(t *testing.T) {
	t.Parallel()
	var got Event
	if s := (scan{text: []byte(text(t, filled())), names: map[string]string{}}); !s.event(&got) {
		t.Fatalf("the line was not read from byte %d on: %s", s.at, s.text[s.at:])
	}
	if !reflect.DeepEqual(got, filled()) {
		t.Errorf("got %+v", got)
	}
}

// like compares with package json.
func like(t *testing.T, line string) {
	t.Helper()
	got, err := newDecoder().decode([]byte(line))
	var want Event
	wantErr := json.Unmarshal([]byte(strings.TrimRight(line, "\n")), &want)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%q\ngot  %+v (%v)\nwant %+v (%v)", line, got, err, want, wantErr)
	}
}

// lines are some of which a scan leaves many to package json, for good reasons.
var lines = []string{
	``, `{}`, `{`, `[]`, `null`, `{"v":1}x`, `{"v":1}` + "\n\n", ` {"v":1}`, `{"v":1,}`, `{"v" :1}`, `{,}`, `{"v":1"seq":2}`,
	`{"V":1,"SEQ":2}`, `{"v":01}`, `{"v":-1}`, `{"v":-0}`, `{"v":1.0}`, `{"v":1e1}`, `{"v":"1"}`, `{"v":null}`, `{"v":}`,
	`{"seq":18446744073709551615}`, `{"seq":18446744073709551616}`, `{"seq":-1}`, `{"step":9223372036854775808}`,
	`{"step":999999999999999999}`, `{"step":-9223372036854775808}`, `{"time":"2026-03-01T12:00:00Z"}`,
	`{"time":"2026-03-01T12:00:00+02:00"}`, `{"time":"\u0032026-03-01T12:00:00Z"}`, `{"time":"yesterday"}`, `{"time":""}`,
	`{"score":-0}`, `{"score":-0.0}`, `{"score":00}`, `{"score":.5}`, `{"score":5.}`, `{"score":1e}`, `{"score":1e999}`,
	`{"score":1E+2}`, `{"score":+1}`, `{"score":0x1p3}`, `{"score":1_0}`, `{"score":Inf}`, `{"score":NaN}`, `{"score":-}`,
	`{"message":"a` + "\n" + `"}`, `{"message":"a` + "\xff" + `"}`, `{"message":"\ud800"}`, `{"message":"\x"}`, `{"message":"\`,
	`{"message":"\"}`, `{"message":"a`, `{"mess\u0061ge":"a"}`, `{"message":"a","message":"b"}`, `{"message":["a"]}`,
	`{"address":"\u0061","address":"\ud83d\ude00"}`, `{"metrics":{"a":1},"metrics":{"b":2}}`, `{"metrics":{"a":1,"a":2}}`,
	`{"metrics":{"a":null}}`, `{"metrics":{}}`, `{"metrics":null}`, `{"metrics":{"\u0061":1}}`, `{"metrics":{"` + "\xff" +
		`":1}}`, `{"attributes":{"a":"\n","b":"c"}}`, `{"attributes":{"a":1}}`, `{"needs":["a"]}`, `{"value":{"a":[1]}}`,
	`{"unknown":{"v":2},"v":1}`, `{"began":"2026-03-01T12:00:00Z","delay":1.5,"pid":3,"attempt":2,"cursors":{"a":{"seq":1}}}`,
}

func TestLinesAreDecodedAsJSON(t *testing.T) {
	t.Parallel()
	for _, line := range lines {
		like(t, line)
	}
	whole := text(t, filled())
	for i := range whole { // cut off, and with another byte
		like(t, whole[:i])
		for _, b := range "\"\\{}:,0-.e \x01" {
			like(t, whole[:i]+string(b)+whole[i+1:])
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, line := range append(lines, text(f, filled())) {
		f.Add(line)
	}
	f.Fuzz(like)
}
