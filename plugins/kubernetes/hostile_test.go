package kubernetes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// answering is the client of a server that gives every request one answer.
func answering(t *testing.T, code int, header http.Header, body string) *client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	c, err := newClient("rl", t.TempDir(), clusterEntry{Server: server.URL}, userEntry{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A list far below the limit of bytes can take gigabytes when it is decoded.
func TestAListThatWouldTakeMemory(t *testing.T) {
	t.Parallel()
	most := limits{items: 100, bytes: 1000, values: 2000, depth: 20}
	conditions := `{"conditions":[{}` + strings.Repeat(",{}", 300) + `]}`
	for name, body := range map[string]string{
		"resources": `{"items":[{}` + strings.Repeat(",{}", most.items) + `]}`,
		"values":    `{"kind":"PodList","items":[` + conditions + strings.Repeat(","+conditions, 9) + `]}`,
		"bytes":     `{"items":[{"name":"` + strings.Repeat("a", most.bytes) + `"}]}`,
		"depth":     `{"items":[{"x":` + strings.Repeat("[", most.depth) + strings.Repeat("]", most.depth) + `}]}`,
	} {
		var l list[object]
		if err := l.within(strings.NewReader(body), most); !errors.Is(err, bounded.ErrTooLarge) {
			t.Errorf("%s: %v; want an error that it is too large", name, err)
		}
	}
	deep := `{"items":[{"x":` + strings.Repeat("[", ofList.depth) + strings.Repeat("]", ofList.depth) + `}]}`
	c := answering(t, http.StatusOK, nil, deep)
	if _, err := c.look(t.Context(), []string{"run"}); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("a real answer: %v; want an error that it is too large", err)
	}
	for name, body := range map[string]string{"none": `{"items":[]}`, "no list": `{"items":{}}`, "text": `[]`,
		"cut off": `{"items":[{}`} {
		c := answering(t, http.StatusOK, nil, body)
		if _, err := c.look(t.Context(), []string{"run"}); (err == nil) != (name == "none") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoRedirectIsFollowed: it would get the token and the Secrets of jobs.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	c := answering(t, http.StatusTemporaryRedirect, http.Header{"Location": {other.URL}}, "")
	if err := c.do(t.Context(), http.MethodPost, c.core("secrets"), object{"data": "keys"}, nil); !isCode(err, 307) {
		t.Errorf("got %v; want the answer as an error", err)
	}
}

func TestALongMessageIsShortened(t *testing.T) {
	t.Parallel()
	c := answering(t, http.StatusForbidden, nil, `{"code":403,"message":"`+strings.Repeat("é", 1<<18)+`"}`)
	if err := c.do(t.Context(), http.MethodGet, c.jobs(), nil, nil); err == nil || len(err.Error()) > 4000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestCredentialsWithoutEnd(t *testing.T) {
	t.Parallel()
	c := &credentials{dir: t.TempDir(), user: userEntry{Exec: &program{Command: "yes"}}}
	if _, err := c.token(t.Context()); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("got %v; want an error that it is too large", err)
	}
}
