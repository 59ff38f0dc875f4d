package trajectories

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// as makes a request with a Host and headers.
func (f *fixture) as(host, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(body))
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	return w
}

// Without this check any web page could read, change and delete the content of a server without a token.
func TestWebPagesAreRefused(t *testing.T) {
	t.Parallel()
	const json = "application/json"
	group := groupText(1, 2, "")
	mozilla := "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for name, test := range map[string]struct {
		host, method, path, body string
		headers                  []string
		code                     int
	}{
		"python": {"127.0.0.1:8000", "POST", "/scored_data", group, []string{"Content-Type", json,
			"User-Agent", "python-requests/2.32"}, 200},
		"aiohttp": {"localhost:8000", "GET", "/status", "",
			[]string{"User-Agent", "Python/3.12 aiohttp/3.12", "Accept", "*/*"}, 200},
		"a reset by a client": {"localhost", "GET", "/reset_data", "", nil, 200},
		"a reset by post":     {"localhost", "POST", "/reset_data", "", nil, 200},
		"an image": {"localhost:8000", "GET", "/reset_data", "", []string{"Sec-Fetch-Site", "cross-site",
			"Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image", "User-Agent", mozilla}, 403},
		"an image on plain HTTP": {"10.0.0.7:8000", "GET", "/reset_data", "", []string{"User-Agent", mozilla}, 403},
		"an image with a referer": {"localhost:8000", "GET", "/reset_data", "",
			[]string{"Referer", "http://evil.example/page"}, 403},
		"a typed reset": {"localhost:8000", "GET", "/reset_data", "", []string{"Sec-Fetch-Site", "none"}, 403},
		"a batch taken by a page": {"localhost:8000", "GET", "/batch", "",
			[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"a read by a page": {"localhost:8000", "GET", "/latest_example", "",
			[]string{"Origin", "http://evil.example"}, 403},
		"a read by a page, no origin": {"localhost:8000", "GET", "/latest_example", "",
			[]string{"Sec-Fetch-Site", "same-site"}, 403},
		"a sandboxed page": {"localhost:8000", "POST", "/scored_data", group, []string{"Origin", "null",
			"Content-Type", json}, 403},
		"another port": {"localhost:8000", "POST", "/scored_data", group,
			[]string{"Origin", "http://localhost:3000", "Content-Type", json}, 403},
		"a form": {"localhost:8000", "POST", "/scored_data", group,
			[]string{"Origin", "http://evil.example", "Content-Type", "text/plain"}, 403},
		"an acknowledgement by a page": {"localhost:8000", "POST", "/batch/x-1-1/ack", "",
			[]string{"Origin", "http://evil.example"}, 403},
		"a preflight": {"localhost:8000", "OPTIONS", "/scored_data", "",
			[]string{"Origin", "http://evil.example", "Access-Control-Request-Method", "POST"}, 403},
		"a typed address": {"localhost:8000", "GET", "/status", "", []string{"Sec-Fetch-Site", "none",
			"User-Agent", mozilla}, 200},
		"a rebound name": {"evil.example:8000", "GET", "/latest_example", "", nil, 421},
		"a rebound name that posts": {"evil.example", "POST", "/scored_data", group, []string{"Content-Type", json,
			"Origin", "http://evil.example"}, 421},
		"an address":         {"[::1]:8000", "GET", "/status", "", nil, 200},
		"a name of loopback": {"run.localhost:8000", "GET", "/status", "", nil, 200},
		"a configured name":  {"Node7.cluster:8000", "GET", "/status", "", nil, 200},
		"an allowed page reads": {"localhost:8000", "GET", "/status", "", []string{"Origin", "https://viewer.example",
			"Sec-Fetch-Site", "cross-site"}, 200},
		"an allowed page posts": {"localhost:8000", "POST", "/scored_data", group,
			[]string{"Origin", "https://viewer.example", "Sec-Fetch-Site", "cross-site", "Content-Type", json}, 200},
		"an allowed page posts text": {"localhost:8000", "POST", "/scored_data", group,
			[]string{"Origin", "https://viewer.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}, 403},
		"an allowed page by GET": {"localhost:8000", "GET", "/reset_data", "",
			[]string{"Origin", "https://viewer.example", "Sec-Fetch-Site", "cross-site"}, 403},
		"an allowed page's preflight": {"localhost:8000", "OPTIONS", "/scored_data", "",
			[]string{"Origin", "https://viewer.example", "Access-Control-Request-Method", "POST"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, Config{AllowedHosts: []string{"node7.cluster"},
				AllowedOrigins: []string{"https://viewer.example"}})
			f.trainer(2)
			f.post(9, 1, "") // must be unchanged
			before := f.waiting()
			w := f.as(test.host, test.method, test.path, test.body, test.headers...)
			if w.Code != test.code {
				t.Fatalf("answered with %d %s, expected %d", w.Code, w.Body, test.code)
			}
			if test.code != http.StatusOK {
				equal(t, "what waits", f.waiting(), before)
				if w.Body.Len() == 0 {
					t.Error("the refusal says nothing")
				}
			}
			origin := w.Header().Get("Access-Control-Allow-Origin")
			if want := map[bool]string{true: "https://viewer.example"}[strings.HasPrefix(name,
				"an allowed page")]; origin != want {
				t.Errorf("allowed origin %q, expected %q", origin, want)
			}
			if w.Header().Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
		})
	}
}

// With a token the host name does not matter: a page with a rebound name does not know the token.
func TestNamesDoNotMatterWithAToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{Token: "secret"})
	if w := f.as("run-api.training.svc:8000", "GET", "/t/secret/status", ""); w.Code != http.StatusOK {
		t.Errorf("answered with %d %s, expected 200", w.Code, w.Body)
	}
	for _, path := range []string{"/t/secret/reset_data", "/t/secret/batch"} {
		w := f.as("localhost", "GET", path, "", "Sec-Fetch-Site", "cross-site")
		if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s of a page is answered with %d %s, expected 403 without the token", path, w.Code, w.Body)
		}
		w = f.as("localhost", "GET", path, "", "User-Agent", "Mozilla/5.0")
		if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s of a browser is answered with %d %s, expected 403 without the token", path, w.Code, w.Body)
		}
	}
	if text := fmt.Sprint(f.state.counts.rejected); !strings.Contains(text, "browser") {
		t.Errorf("rejections are counted as %s, expected browsers too", text)
	}
}
