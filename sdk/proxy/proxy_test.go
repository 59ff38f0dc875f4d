package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/proxy"
)

// What is on the internet is asked of the site's proxy, what is on this network is not. The standard library reads the
// variables once, so they are those of a process of its own.
func TestRequestsThatGoThroughAProxy(t *testing.T) {
	if asked := os.Getenv("RECIPE_TEST_ASK"); asked != "" {
		for _, address := range strings.Fields(asked) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			through, err := proxy.Of(req)
			if err != nil || through != nil {
				t.Logf("proxied %s", address)
			}
		}
		transport := &http.Transport{Proxy: proxy.Of, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example.com/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		t.Logf("answered %s", text)
		return
	}
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "by the proxy: "+r.URL.String())
	}))
	defer site.Close()
	near := "http://localhost:1 http://127.0.0.1:1/v1 http://10.1.2.3:1 http://192.168.0.4 https://172.16.0.1 " +
		"http://[::1]:1 http://[fd00::1]:1 http://169.254.1.1 http://100.64.3.4:8000/v1 " +
		"http://gpu-17:8000 http://site.example.org:8000"
	far := "http://api.example.com/v1 https://api.example.com http://8.8.8.8"
	again := exec.Command(os.Args[0], "-test.run=^TestRequestsThatGoThroughAProxy$", "-test.v")
	again.Env = append(os.Environ(), "RECIPE_TEST_ASK="+near+" "+far, "HTTP_PROXY="+site.URL, "HTTPS_PROXY="+site.URL,
		"http_proxy=", "https_proxy=", "NO_PROXY=site.example.org", "no_proxy=")
	out, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var proxied []string
	for _, line := range strings.Split(string(out), "\n") {
		if _, address, found := strings.Cut(line, "proxied "); found {
			proxied = append(proxied, address)
		}
	}
	if got := strings.Join(proxied, " "); got != far {
		t.Errorf("through the proxy go %q, expected %q", got, far)
	}
	if want := "answered by the proxy: http://api.example.com/v1/models"; !strings.Contains(string(out), want) {
		t.Errorf("no line says %q:\n%s", want, out)
	}
}

func TestServersOfThisNetworkAreNotAskedOfAProxy(t *testing.T) {
	t.Parallel()
	near := []string{"http://10.1.2.3:8000/v1", "http://token@gpu-17:1", "https://api.example.com/v1", "",
		"http://127.0.0.1:3"}
	for _, c := range []struct {
		environ string
		servers []string
		want    string
	}{
		{"", near, ""},
		{"http_proxy=", near, "http_proxy="},
		{"NO_PROXY=intern", nil, "NO_PROXY=intern,localhost,127.0.0.1"},
		{"NO_PROXY=intern", near, "NO_PROXY=intern,localhost,127.0.0.1,10.1.2.3,gpu-17"},
		{"http_proxy=http://p:3128", near, "http_proxy=http://p:3128 no_proxy=localhost,127.0.0.1,10.1.2.3,gpu-17"},
		{"ALL_PROXY=socks5://p no_proxy=", nil, "ALL_PROXY=socks5://p no_proxy= no_proxy=localhost,127.0.0.1"},
		{"NO_PROXY=gpu-17 HTTPS_PROXY=http://p", near,
			"NO_PROXY=gpu-17,localhost,127.0.0.1,10.1.2.3 HTTPS_PROXY=http://p"},
		{"no_proxy=a NO_PROXY=b http_proxy=http://p", nil,
			"no_proxy=a,localhost,127.0.0.1 NO_PROXY=b,localhost,127.0.0.1 http_proxy=http://p"},
		{"http_proxy=http://p no_proxy=*", near, "http_proxy=http://p no_proxy=*"},
	} {
		got := proxy.Past(strings.Fields(c.environ), c.servers...)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("of %q: %q, expected %q", c.environ, text, c.want)
		}
	}
}
