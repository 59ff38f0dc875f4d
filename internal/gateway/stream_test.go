package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestStreamPassesUnbuffered(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 2}, e)
	next := make(chan struct{})
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		out := http.NewResponseController(w)
		for i, piece := range []string{
			`{"choices":[{"index":0,"text":"a","logprobs":{"token_logprobs":[-0.5],"tokens":["token_id:8"]},"prompt_token_ids":[1,2],"token_ids":[8]}]}`,
			`{"choices":[{"index":0,"text":"b","logprobs":{"token_logprobs":[-1.5],"tokens":["token_id:9"]},"finish_reason":"stop","token_ids":[9]}]}`,
			`[DONE]`,
		} {
			if i > 0 {
				<-next
			}
			_, _ = io.WriteString(w, "data: "+piece+"\n\n")
			_ = out.Flush()
		}
	})
	req, _ := http.NewRequest(http.MethodPost, g.URL()+"/v1/completions",
		strings.NewReader(`{"stream":true,"prompt":"x","return_token_ids":true}`))
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if v := resp.Header.Get(HeaderVersion); v != "2" {
		t.Errorf("the header says version %q, want 2", v)
	}
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 { // each event must arrive before the engine may continue
		for lines.Scan() && lines.Text() == "" {
		}
		if !strings.HasPrefix(lines.Text(), "data: ") {
			t.Fatalf("event %d is %q", i, lines.Text())
		}
		if i == 1 { // an update between two tokens
			if err := g.SetVersion(3); err != nil {
				t.Fatal(err)
			}
		}
		if i < 2 {
			next <- struct{}{}
		}
	}
	for lines.Scan() {
	}
	if v := resp.Trailer.Get(HeaderVersionMax); v != "3" {
		t.Errorf("the trailer says version %q, want 3", v)
	}
	eventually(t, "the record", func() bool { _, found, _ := g.Lookup([]int{1, 2, 8, 9}); return found })
	rec, _, _ := g.Lookup([]int{1, 2, 8, 9})
	if rec.Version != 2 || rec.VersionMax != 3 || rec.Logprobs[1] != -1.5 {
		t.Errorf("recorded %+v", rec)
	}
}

func TestAbortEndsAStreamWithAnError(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	req, _ := http.NewRequest(http.MethodPost, g.URL()+"/v1/completions",
		strings.NewReader(`{"stream":true,"prompt":"x"}`))
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadString('\n'); err != nil { // the stream has begun
		t.Fatal(err)
	}
	if _, err := g.Hold(context.Background(), HoldRequest{ID: "x", Mode: ModeAbort}); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(rest), `"type":"aborted"`) || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream ended with %q (%v), want an error event", rest, err)
	}
}

// A stream without token ids is not parsed event by event, but its tokens are counted if it reports their number.
func TestStreamUsageIsCounted(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\ndata: "+
			"{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n")
	})
	if r := post(t, g, "/c/env/v1/chat/completions", `{"stream":true,"messages":[]}`); !strings.HasSuffix(r.body,
		"[DONE]\n\n") {
		t.Fatalf("got %q", r.body)
	}
	eventually(t, "the count", func() bool { return g.Status().Clients["env"].OutputTokens == 7 })
}

// However the network splits a stream, the record is the same.
func TestRecorderReadsAnySplitOfAStream(t *testing.T) {
	t.Parallel()
	const events = "event: x\r\n" +
		"data: {\"choices\":[{\"index\":1,\"token_ids\":[5],\"logprobs\":{\"token_logprobs\":[-0.5]}}," +
		"{\"index\":0,\"token_ids\":[6,7],\"logprobs\":{\"token_logprobs\":[-1,-2]}}]}\r\n\r\n: a comment\n\n" +
		"data: {\"choices\":[{\"index\":1,\"token_ids\":[8],\"logprobs\":{\"token_logprobs\":[-3]}}]," +
		"\"usage\":{\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
	for size := 1; size <= len(events); size++ {
		recorder := newStreamRecorder(&call{path: "/v1/completions", ids: true}, true)
		for rest := events; rest != ""; {
			n := min(size, len(rest))
			recorder.write([]byte(rest[:n]))
			rest = rest[n:]
		}
		if recorder.bad != nil || recorder.usage != 4 || fmt.Sprint(recorder.choices[0].ids, recorder.choices[1].ids,
			recorder.choices[1].logprobs) != "[6 7] [5 8] [-0.5 -3]" {
			t.Fatalf("in pieces of %d: %+v %+v %+v", size, recorder, recorder.choices[0], recorder.choices[1])
		}
	}
	recorder := newStreamRecorder(&call{path: "/v1/completions", ids: true}, true)
	recorder.write([]byte("data: {\"choices\":[{\"index\":0," +
		"\"token_ids\":[6,7],\"logprobs\":{\"token_logprobs\":[-1]}}]}\n\n"))
	if recorder.bad == nil {
		t.Error("an event with a hole did not stop the recording")
	}
}
