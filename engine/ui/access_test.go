package ui

import (
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestTheCookieGoesToNoOtherPort: a browser sends the cookies of a host to each of its ports, where servers of other
// users of the machine may listen.
func TestTheCookieGoesToNoOtherPort(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{Token: "s3cret"})
	dashboard := httptest.NewServer(f.Handler())
	t.Cleanup(dashboard.Close)
	var sent []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Cookie"))
	}))
	t.Cleanup(other.Close)
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{Jar: jar}
	visit := func(address string) (status int, at *url.URL) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		must(t, err)
		reply, err := browser.Do(req)
		must(t, err)
		must(t, reply.Body.Close())
		return reply.StatusCode, reply.Request.URL
	}
	_, page := visit(dashboard.URL + "/?token=s3cret")
	if status, _ := visit(page.JoinPath("api/runs").String()); status != http.StatusOK {
		t.Errorf("the page at %s is answered with %d: its cookie is not sent", page, status)
	}
	for _, path := range []string{"/", "/api/runs", "/app.js"} {
		visit(other.URL + path)
	}
	if got := strings.Join(sent, ""); got != "" {
		t.Errorf("another port of the host gets the cookie %s", got)
	}
}

// Everything that another site may not have is read only.
func TestNothingCanBeChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/runs/demo", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s is answered with %d", method, w.Code)
		}
	}
	for _, path := range []string{"/api/runs/..%2f..%2fetc", "/api/runs/demo/samples/..%2f..%2fevents/1",
		"/..%2fui.go", "/api/runs/demo/samples/" + blockName + "/7"} {
		if w := f.ask(path); w.Code != http.StatusNotFound {
			t.Errorf("%s is answered with %d %s", path, w.Code, w.Body)
		}
	}
}
