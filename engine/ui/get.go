package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Get returns what the page is answered for a path below /api, such as runs/quickstart/series. For callers in this
// process: it asks for no token.
func (s *Server) Get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	target := "/api/" + path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	w := &buffered{header: http.Header{}, status: http.StatusOK}
	s.routes().ServeHTTP(w, req)
	if w.status == http.StatusOK {
		return w.body.Bytes(), nil
	}
	var refused struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(w.body.Bytes(), &refused); err != nil {
		return nil, fmt.Errorf("read a run: %s: %s", target, http.StatusText(w.status))
	}
	return nil, &refusal{w.status, refused.Error}
}

// buffered keeps an answer in memory.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header { return b.header }

func (b *buffered) WriteHeader(status int) { b.status = status }

func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }
