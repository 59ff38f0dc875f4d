package gateway

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// gate is an engine that answers when the gate opens.
func gate(e *talkEngine) (asked chan struct{}, open func()) {
	asked = make(chan struct{}, 1024)
	opened := make(chan struct{})
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			asked <- struct{}{}
			<-opened
		}
		e.serve(w, r)
	})
	return asked, func() { close(opened) }
}

func TestCallsAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	asked, open := gate(e)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	_, c := openSession(t, g, `{}`)
	var all sync.WaitGroup
	for i := range maxSessionCalls {
		all.Go(func() {
			one := *c
			if status, body := one.ask(userSays(fmt.Sprint(i))); status != http.StatusOK {
				t.Errorf("call %d: %d %s", i, status, body)
			}
		})
	}
	for range maxSessionCalls {
		<-asked
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"} {
		if status, body := request(t, g, http.MethodPost, path, c.key, `{"messages":[`+userSays("q")+`]}`); status !=
			http.StatusTooManyRequests {
			t.Errorf("%s above the limit: %d %s", path, status, body)
		}
	}
	_, other := openSession(t, g, `{}`)
	all.Go(func() { other.say(userSays("q")) })
	<-asked // other sessions are asked for all the same
	open()
	all.Wait()
	one := *c
	one.say(userSays("later"))
}

// Each of the calls is within the budget, and both together are not.
func TestCallsAtATimeShareTheBudget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, more string
		answers    int
	}{
		{"each may take all that is left", "", 2},
		{"each may take a part", `,"max_tokens":3`, 3},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := newTalkEngine(t)
			asked, open := gate(e)
			g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
			id, c := openSession(t, g, `{"budget":{"tokens":6}}`)
			c.more = tc.more
			var all sync.WaitGroup
			var mu sync.Mutex
			var statuses []int
			for i := range 3 {
				all.Go(func() {
					one := *c
					status, _ := one.ask(userSays(fmt.Sprint(i)))
					mu.Lock()
					defer mu.Unlock()
					statuses = append(statuses, status)
				})
			}
			<-asked
			eventually(t, "the calls to begin", func() bool { return pending(t, g, id) == 3 })
			open()
			all.Wait()
			s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
			if s.Get("sampled").Int() != 6 || s.Get("calls").Int() != 2 || !strings.HasPrefix(s.Get("truncated").Str, "tokens") {
				t.Errorf("%v, and the session is %s", statuses, s.Raw)
			}
			most := 0
			for _, r := range e.seen() {
				if r.path == "/v1/completions" {
					most = max(most, int(gjson.Get(r.body, "max_tokens").Int()))
				}
			}
			if most > 6 {
				t.Errorf("the engine was asked for %d tokens", most)
			}
		})
	}
}

// A session that has ended, or that is refused more calls, does not have bodies read and engines asked.
func TestAnEndedSessionAsksNobody(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	owner(t, g, http.MethodPost, "/recipe/v1/sessions/"+id+"/finish", "")
	before := len(e.seen())
	for _, path := range []string{"/v1/chat/completions", "/v1/messages/count_tokens"} {
		if status, body := request(t, g, http.MethodPost, path, c.key, `{"messages":[`+userSays("q")+`]}`); status !=
			http.StatusConflict {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if n := len(e.seen()); n != before {
		t.Errorf("the engine got %d requests", n-before)
	}
}

// Engines read ranks, priorities and names of requests from headers.
func TestAProgramSendsNoHeadersToAnEngine(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	_, c := openSession(t, g, `{}`)
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/v1/chat/completions", `{"messages":[` + userSays("q") + `]}`},
		{"GET", "/v1/models?x=secret", ""},
		{"GET", "/v1/models/policy?x=secret", ""},
	} {
		req, err := http.NewRequest(r.method, g.URL()+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		req.Header.Set("X-Data-Parallel-Rank", "secret")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	seen := e.seen()
	if len(seen) < 4 {
		t.Fatalf("the engine got %d requests", len(seen))
	}
	for _, r := range seen {
		if got := fmt.Sprint(r.header, r.query); strings.Contains(got, "secret") || strings.Contains(got, c.key) {
			t.Errorf("%s got %s", r.path, got)
		}
	}
}

// A program learns nothing of the machine from what goes wrong.
func TestAProgramLearnsNoPath(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	g := start(t, Config{Sessions: folder}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	g.sessions.mu.Lock()
	delete(g.sessions.byID, id)
	g.sessions.mu.Unlock()
	if err := os.WriteFile(g.sessions.path(id), []byte("no journal\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, body := c.ask(userSays("q"))
	if status < 400 || strings.Contains(body, folder) || !strings.Contains(body, "the folder of sessions") {
		t.Errorf("got %d %s", status, body)
	}
}

// announce sends the headers of a request with a body that does not come, and returns when the gateway reads it.
func announce(t *testing.T, g *Gateway, token string, length int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", token, length); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 25)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Other requests of the session wait until there is room for their bodies.
func TestBodiesOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	l, err := g.sessions.get(id)
	if err != nil {
		t.Fatal(err)
	}
	first := announce(t, g, c.key, maxSessionBody)
	announce(t, g, c.key, sessionBodies-maxSessionBody)
	if l.bodies.TryAcquire(1) {
		t.Error("there is room for more than the limit")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "room for another body", func() bool {
		ok := l.bodies.TryAcquire(maxSessionBody)
		if ok {
			l.bodies.Release(maxSessionBody)
		}
		return ok
	})
	c.say(userSays("q"))
	if status, body := request(t, g, http.MethodPost, "/v1/chat/completions", c.key, strings.Repeat(" ",
		maxSessionBody+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body above the limit: %d %s", status, body)
	}
}

// A client that announces 64 MiB and sends a byte would else make the collector wait for 64 MiB more of garbage.
func TestAnAnnouncedBodyTakesNoMemory(t *testing.T) {
	g := start(t, Config{}, newEngine(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 32 {
		announce(t, g, dataToken, 64<<20)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
		t.Errorf("32 announced bodies of 64 MiB take %d MiB", took>>20)
	}
}

func TestALargeBodyArrivesWhole(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	for _, size := range []int{firstPart - 1, firstPart, firstPart + 1, 3*firstPart + 7} {
		body := `{"prompt":"` + strings.Repeat("x", size-13) + `"}`
		request(t, g, http.MethodPost, "/v1/completions", dataToken, body)
		if seen := e.seen(); seen[len(seen)-1].body != body {
			t.Errorf("a body of %d bytes arrived as one of %d", len(body), len(seen[len(seen)-1].body))
		}
	}
}

func TestAHeadIsRecognized(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		head, tokens []int32
		want         bool
	}{
		{"a beginning", []int32{1, 2}, []int32{1, 2, 3}, true},
		{"all of it", []int32{1, 2}, []int32{1, 2}, false},
		{"another beginning", []int32{1, 3}, []int32{1, 2, 3}, false},
		{"longer", []int32{1, 2, 3}, []int32{1, 2}, false},
	}
	for _, tc := range tests {
		if got := headOf(tc.head).begins(slices.Clone(tc.tokens)); got != tc.want {
			t.Errorf("%s: got %t", tc.name, got)
		}
	}
}

// The journal has arguments within its own objects: at the depth that JSON may have it could not be read again.
func TestACallThatIsTooDeepStaysText(t *testing.T) {
	t.Parallel()
	e, folder := newTalkEngine(t), t.TempDir()
	g := start(t, Config{Sessions: folder}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	c.more = `,"tools":[{"type":"function","function":{"name":"add"}}]`
	e.say = `<tool_call>{"name":"add","arguments":{"a":` + strings.Repeat("[", 9996) + strings.Repeat("]", 9996) +
		`}}</tool_call>`
	answer := c.say(userSays("q")).Get("choices.0.message")
	if answer.Get("tool_calls").Exists() || answer.Get("content").Str != e.say {
		t.Errorf("got %.200s", answer.Raw)
	}
	again := start(t, Config{Sessions: folder}, e.fakeEngine)
	if s := owner(t, again, http.MethodGet, "/recipe/v1/sessions/"+id, ""); s.Get("calls").Int() != 1 {
		t.Errorf("after a restart the session is %.200s", s.Raw)
	}
}

// What a program says without tokens, as a name of a call, is held too: it has a limit of its own.
func TestMessagesOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	_, c := openSession(t, g, `{}`)
	ask := func(messages string) (int, string) {
		return request(t, g, http.MethodPost, "/v1/chat/completions", c.key, `{"messages":[`+messages+`]}`)
	}
	long := strings.Repeat("x", 15<<20)
	said := func(n int) string {
		return fmt.Sprintf(`{"role":"user","content":"%d"},{"role":"assistant","tool_calls":[{"id":"%s","function":`+
			`{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"%s","content":"1"}`, n, long[:7<<20], long[:7<<20])
	}
	for n := range maxSessionText / (14 << 20) {
		if status, body := ask(said(n)); status != http.StatusOK {
			t.Fatalf("call %d: %d %.200s", n, status, body)
		}
	}
	if status, body := ask(said(99)); status != http.StatusOK { // the last one that begins within the limit
		t.Fatalf("%d %.200s", status, body)
	}
	if status, body := ask(userSays("q")); status != http.StatusBadRequest ||
		!strings.Contains(string(body), "its messages hold") {
		t.Errorf("above the limit: %d %.200s", status, body)
	}
}

// What a program sends comes back in its answers many times: in each event of a stream, with escapes.
func TestNoRequestComesBackAsALongAnswer(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	_, c := openSession(t, g, `{}`)
	long := strings.Repeat(`\u0001`, 100_000)
	for name, q := range map[string]struct{ route, body string }{
		"the model":    {"/v1/responses", `{"stream":true,"model":"` + long + `","input":"q"}`},
		"a role":       {"/v1/chat/completions", `{"messages":[{"role":"` + long + `","content":"q"}]}`},
		"a part":       {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"` + long + `"}]}]}`},
		"an item":      {"/v1/responses", `{"input":[{"type":"` + long + `"}]}`},
		"a format":     {"/v1/responses", `{"input":"q","text":{"format":{"type":"` + long + `"}}}`},
		"a block":      {"/v1/messages", `{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"` + long + `"}]}]}`},
		"what counts":  {"/v1/messages/count_tokens", `{"model":"` + long + `","messages":[{"role":"user","content":"q"}]}`},
		"JSON of none": {"/v1/chat/completions", `{"messages":"` + long + `"}`},
	} {
		status, body := request(t, g, http.MethodPost, q.route, c.key, q.body)
		if status != http.StatusBadRequest || len(body) > 8*longestMessage {
			t.Errorf("%s: %d, an answer of %d bytes: %.100s", name, status, len(body), body)
		}
	}
	c.say(userSays("q"))
}

// A program that only asks for the number of tokens, or whose calls are refused, keeps no engine busy for ever.
func TestRenderedPromptsAreCounted(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	count := func() (int, string) {
		return request(t, g, http.MethodPost, "/v1/messages/count_tokens", c.key,
			`{"messages":[{"role":"user","content":"q"}]}`)
	}
	if status, body := count(); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	l, err := g.sessions.get(id)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	if l.rendered == 0 {
		t.Error("the tokens that were counted do not count")
	}
	l.rendered = maxRendered
	l.mu.Unlock()
	for name, ask := range map[string]func() (int, string){"count": count, "call": func() (int, string) {
		return c.ask(userSays("q"))
	}} {
		if status, body := ask(); status != http.StatusBadRequest || !strings.Contains(body, "were rendered") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// Texts whose tokens are being made take a bounded memory of the gateway, whatever the number of sessions.
func TestRenderingHasRoom(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	if !g.sessions.rendering.TryAcquire(maxRendering) {
		t.Fatal("there is no room")
	}
	_, c := openSession(t, g, `{}`)
	done := make(chan int, 1)
	go func() {
		status, _ := c.ask(userSays("q"))
		done <- status
	}()
	select {
	case status := <-done:
		t.Errorf("a call without room: %d", status)
	case <-time.After(100 * time.Millisecond):
	}
	g.sessions.rendering.Release(maxRendering)
	if status := <-done; status != http.StatusOK {
		t.Errorf("after the others have ended: %d", status)
	}
	if !g.sessions.rendering.TryAcquire(maxRendering) {
		t.Error("the room is not given back")
	}
}

// A journal that somebody else wrote takes no more memory than one of recipe's.
func TestAForgedJournalIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	g := start(t, Config{Sessions: folder}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	c.say(userSays("q"))
	path := filepath.Join(folder, id+".jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfterN(string(whole), "\n", 3)
	forged := lines[0] + strings.Repeat(lines[1], 2*maxTurns)
	if err := os.WriteFile(path, []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{Sessions: folder}, newTalkEngine(t).fakeEngine)
	if _, err := again.sessions.get(id); err == nil || !strings.Contains(err.Error(), "more than recipe writes") {
		t.Errorf("%d calls: %v", 2*maxTurns, err)
	}
}
