package harness

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/sdk/proxy"
)

// door lets a harness reach the policy by a key of its own, which ends with it: harnesses print their requests.
type door struct {
	url, key string // url ends in /v1
	server   *http.Server
	served   chan error
}

// openDoor serves a door to a policy on loopback.
func openDoor(base, key string) (*door, error) {
	to, err := url.Parse(strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1"))
	if err != nil {
		return nil, fmt.Errorf("the address of the policy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the harness: %w", err)
	}
	d := &door{url: "http://" + listener.Addr().String() + "/v1", key: rand.Text(), served: make(chan error, 1)}
	forward := &httputil.ReverseProxy{
		Transport: peer.Transport(base, &http.Transport{MaxIdleConnsPerHost: 64, Proxy: proxy.Of}),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
	}
	d.server = web.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Get("Authorization"); subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+d.key)) != 1 {
			http.Error(w, "wrong key", http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	go func() { d.served <- web.Serve(d.server, listener) }()
	return d, nil
}

func (d *door) close() error {
	err := d.server.Close()
	<-d.served
	return err
}
