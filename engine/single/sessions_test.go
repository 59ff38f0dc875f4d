package single

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/internal/session"
	"github.com/recipe-rl/recipe/internal/temporary"
)

// call asks a server with a key.
func call(t *testing.T, method, url, key string, body, out any) int {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil && answer.StatusCode == http.StatusOK {
		t.Fatal(err)
	}
	return answer.StatusCode
}

// A server that gives no token ids has sessions, too: a second turn continues the first one.
func TestSessionsOfAServerWithoutTokens(t *testing.T) {
	t.Parallel()
	fixed, err := NewFixed("yes")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fixed.Close() }()
	proxy, err := NewProxy(t.Context(), fixed.URL, "", fixed.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	}()
	control, _ := proxy.Control()
	var opened session.Opened
	if code := call(t, http.MethodPost, control+"/recipe/v1/sessions", "wrong", session.Open{}, &opened); code != 401 {
		t.Errorf("a wrong key: HTTP %d, want 401", code)
	}
	call(t, http.MethodPost, control+"/recipe/v1/sessions", proxy.Token, session.Open{}, &opened)
	messages := []any{object{"role": "user", "content": "a"}}
	for _, next := range []string{"b", "c"} {
		var got struct {
			Choices []struct {
				Message object `json:"message"`
			} `json:"choices"`
		}
		code := call(t, http.MethodPost, control+"/v1/chat/completions", opened.Key, object{"messages": messages}, &got)
		if code != http.StatusOK || got.Choices[0].Message["content"] != "yes" {
			t.Fatalf("HTTP %d, %+v; want the fixed answer", code, got)
		}
		messages = append(messages, got.Choices[0].Message, object{"role": "user", "content": next})
	}
	var status session.Status
	call(t, http.MethodGet, control+"/recipe/v1/sessions/"+opened.ID, proxy.Token, nil, &status)
	if len(status.Sequences) != 1 || len(status.Sequences[0].Calls) != 2 || len(status.Sequences[0].Messages) != 4 {
		t.Errorf("got %+v, want one sequence of two calls", status)
	}
}

// A process that was killed leaves its folder of sessions, conversations in it, to the next one, which removes it.
func TestSessionsThatWereLeftAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := filepath.Join(os.TempDir(), "recipe-sessions-left")
	err := errors.Join(os.Mkdir(left, 0o700), os.WriteFile(filepath.Join(left, temporary.LockName), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := NewFixed("yes")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fixed.Close() }()
	proxy, err := NewProxy(t.Context(), fixed.URL, "", fixed.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a killed process: %v, want it removed", err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(os.TempDir()); err != nil || len(entries) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", entries, err)
	}
}
