package gateway

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
)

// A gateway that is killed after it has recorded a call, and before the program has got the answer, gives the answer
// when the program asks again.
//
//docs:sessions.md a program that asks again gets the answer that did not reach it
func TestAnAnswerThatWasNotSent(t *testing.T) {
	t.Parallel()
	e, folder := newTalkEngine(t), t.TempDir()
	first := start(t, Config{Sessions: folder}, e.fakeEngine)
	id, c := openSession(t, first, `{"budget":{"turns":2}}`)
	c.say(userSays("q"))
	c.say(userSays("more"))
	path := filepath.Join(folder, id+".jsonl")
	journal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	journal, found := bytes.CutSuffix(journal, []byte(`{"deliver":1}`+"\n"))
	if err := os.WriteFile(path, journal, 0o600); err != nil || !found {
		t.Fatalf("the journal does not end with the delivery of call 1: %v, %s", err, journal)
	}
	c.g = start(t, Config{Sessions: folder}, e.fakeEngine)
	trained := func() int { // the tokens of the second answer
		s := owner(t, c.g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
		return len(slices.DeleteFunc(numbers(s.Get("sequences.0.masks")), func(m int) bool { return m < 1002 }))
	}
	if n := trained(); n != 0 {
		t.Errorf("%d tokens are trained that the program has not received", n)
	}
	c.messages = c.messages[:2]
	if answer := c.say(userSays("more")); answer.Get("choices.0.message.content").Str != "said 1002" ||
		answer.Get("usage.completion_tokens").Int() != 3 || answer.Get("usage.prompt_tokens").Int() != 14 {
		t.Errorf("the answer is %s", answer.Raw)
	}
	if len(e.prompts) != 2 {
		t.Errorf("the engine was asked %d times, want 2", len(e.prompts))
	}
	if n := trained(); n != 2 {
		t.Errorf("%d tokens of the answer are trained, want 2 and the end", n)
	}
	c.messages = c.messages[:2]
	if status, body := c.ask(userSays("more")); status != http.StatusBadRequest { // the budget has no third call
		t.Errorf("asked for another answer: %d %s", status, body)
	}
}

// Who asks the same at a time, or again after an answer, wants another answer.
func TestEqualCallsAreAllSampled(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	_, c := openSession(t, g, `{}`)
	var mu sync.Mutex
	said := map[string]bool{}
	for range 2 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				status, body := request(t, g, http.MethodPost, "/v1/chat/completions", c.key, `{"messages":[`+userSays("q")+`]}`)
				if status != http.StatusOK {
					t.Errorf("%d %s", status, body)
				}
				mu.Lock()
				defer mu.Unlock()
				said[gjson.Get(body, "choices.0.message.content").Str] = true
			})
		}
		wg.Wait()
	}
	if len(said) != 8 {
		t.Errorf("%d different answers to 8 calls", len(said))
	}
}
