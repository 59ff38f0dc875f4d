package packages

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// maxListed is the most that is read of a registry's answers to one question, such as its versions, over all pages: ten
// thousand of them have some hundred kilobytes.
const maxListed = 64 << 20

// maxPages is the most requests for one such list: small pages without end would never fill maxListed. Registries give
// 50 versions a page and more.
const maxPages = maxTags / 50

// listedTransport bounds answers of a registry, which the author of a recipe names, together. Blobs are bounded by the
// size in their manifest instead; a registry may redirect to the store that has them.
type listedTransport struct {
	base  http.RoundTripper
	blobs bool // blobs may be among the answers
	left  atomic.Int64
	asked atomic.Int64
}

func bounded(base http.RoundTripper, blobs bool) http.RoundTripper {
	t := &listedTransport{base: base, blobs: blobs}
	t.left.Store(maxListed)
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *listedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.blobs && t.asked.Add(1) > maxPages {
		return nil, fmt.Errorf("%s has more than %d pages where it lists what it has", req.URL.Host, maxPages)
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil || t.blobs && ofBlob(req) {
		return resp, err
	}
	resp.Body = &listedBody{resp.Body, &t.left, req.URL.Host}
	return resp, nil
}

// ofBlob reports whether a request is for a blob, also after redirects to where it is kept.
func ofBlob(req *http.Request) bool {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return strings.Contains(req.URL.Path, "/blobs/")
}

type listedBody struct {
	io.ReadCloser
	left *atomic.Int64
	host string
}

func (b *listedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("%s sends more than %d bytes where it lists what it has", b.host, maxListed)
	}
	return n, err
}
