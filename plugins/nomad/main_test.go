package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// TestTheTokenGoesToItsOwnAddress: what a recipe names may be anyone's.
func TestTheTokenGoesToItsOwnAddress(t *testing.T) {
	given := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given <- r.Header
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	t.Setenv("NOMAD_TOKEN", "secret")
	t.Setenv("NOMAD_HTTP_AUTH", "user:secret")
	for _, c := range []struct {
		own, named string
		token      string
	}{{server.URL, "", "secret"}, {server.URL, server.URL + "/", "secret"}, {"http://127.0.0.1:9", server.URL, ""},
		{"", server.URL, ""}} {
		t.Setenv("NOMAD_ADDR", c.own)
		x, err := open(Config{Address: c.named}, "")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = x.(executor.Tester).Test(t.Context(), executor.Job{Argv: []string{"true"}})
		h := <-given
		if got := h.Get("X-Nomad-Token"); got != c.token || (h.Get("Authorization") == "") != (c.token == "") {
			t.Errorf("NOMAD_ADDR=%q, address %q: token %q, want %q; %q", c.own, c.named, got, c.token, h.Get("Authorization"))
		}
	}
}

// TestAnAnswerWithoutTasks ends no process, and a name that is none has no logs.
func TestAnAnswerWithoutTasks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	x, err := open(Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	key := executor.Key{Run: "run", Block: "trainer.tiny.policy", Attempt: 1}
	if err := x.Cancel(t.Context(), executor.Handle{Key: key, ID: name(key)}, time.Second); err == nil {
		t.Error("no error")
	}
	if err := x.Logs(t.Context(), executor.Handle{Key: key, ID: ".*"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "is no name of a job") {
		t.Errorf("logs of all jobs: %v", err)
	}
}

// TestAnAnswerWithoutEnd fills no memory.
func TestAnAnswerWithoutEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte(`[{}`))
		for part := []byte(strings.Repeat(",{}", 1<<16)); err == nil; _, err = w.Write(part) {
		}
	}))
	defer server.Close()
	x, err := open(Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.List(t.Context(), "run"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v; want an error that the answer has more than the limit", err)
	}
}

// TestARedirectGetsNoToken: Go's client sends Nomad's header to every host.
func TestARedirectGetsNoToken(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with the token %q", r.Header.Get("X-Nomad-Token"))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	t.Setenv("NOMAD_TOKEN", "secret")
	t.Setenv("NOMAD_ADDR", server.URL)
	x, err := open(Config{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.List(t.Context(), "run"); err == nil {
		t.Error("no error")
	}
}
