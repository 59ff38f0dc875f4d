// Package tools implements `recipe trajectories`: it reads a trajectory API that is running, or the store of a stopped
// one. Every function writes for people, or JSON where its options ask for it, and stops when its context ends.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Target says where the trajectories are: a running server, or the folder of one that has stopped.
type Target struct {
	URL   string // such as http://127.0.0.1:8000, with or without /t/<token>
	Token string
	Dir   string // the folder of a disk store that no server has open, or of a record of samples
	// Assumed is set where nobody has named the URL: a server on loopback must then belong to this user or root.
	Assumed bool
	most    int64 // bytes of an answer; 0: mostBytes
}

// mostBytes is how large an answer, or a line of a recording or of a stream, may be: a group has 256 MiB where the
// server has its default limits.
const mostBytes = 512 << 20

func (t Target) limit() int64 {
	if t.most > 0 {
		return t.most
	}
	return mostBytes
}

func (t Target) transport() *http.Transport {
	own := http.DefaultTransport.(*http.Transport).Clone()
	if t.Assumed {
		return peer.Transport(t.URL, own)
	}
	return trajectory.Transport(t.URL, t.Token, own)
}

// source answers requests, over the network or from a folder.
type source struct {
	base, token string
	do          func(*http.Request) (*http.Response, error)
	close       func() error
	most        int64 // bytes of an answer, or of a line
}

// open connects to the target.
func (t Target) open(ctx context.Context) (*source, error) {
	switch {
	case t.URL != "" && t.Dir != "":
		return nil, errors.New("give either the URL of a running trajectory API or the folder of a stopped one, not both")
	case t.URL != "":
		return &source{
			base:  strings.TrimRight(t.URL, "/"),
			token: t.Token,
			most:  t.limit(),
			do:    (&http.Client{Transport: t.transport()}).Do,
			close: func() error { return nil },
		}, nil
	case t.Dir != "" && isRecord(t.Dir):
		return openRecord(t.Dir)
	case t.Dir != "":
		s, err := trajectories.Open(ctx, trajectories.Config{Dir: t.Dir, Existing: true})
		if err != nil {
			return nil, err
		}
		h := s.Handler()
		return &source{most: t.limit(), base: "http://localhost", do: func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result(), nil
		}, close: func() error { return s.Close(context.WithoutCancel(ctx)) }}, nil
	}
	return nil, errors.New("no trajectory API was named: give its URL, or the folder of its store")
}

// get asks for a path; the caller closes the body.
func (s *source) get(ctx context.Context, path string) (io.ReadCloser, error) {
	body, err := s.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{bounded.Reader(body, s.most), body}, nil
}

func (s *source) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("asking the trajectory API: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	reply, err := s.do(r)
	if err != nil {
		return nil, fmt.Errorf(
			"asking the trajectory API for %s: %w; is it running? `recipe status` says where",
			path,
			err,
		)
	}
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 2000))
		_ = reply.Body.Close()
		return nil, fmt.Errorf(
			"the trajectory API answered %s with %s: %s",
			path,
			reply.Status,
			strings.TrimSpace(string(text)),
		)
	}
	return reply.Body, nil
}

// decode asks for a path and reads the JSON of its reply.
func (s *source) decode(ctx context.Context, path string, out any) error {
	body, err := s.get(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf(
			"reading the reply to %s: %w; is this a recipe trajectory API? run-api lacks this route",
			path,
			err,
		)
	}
	return nil
}

// each calls f with every stored group in order of arrival. Groups that are delivered meanwhile are skipped.
func (s *source) each(ctx context.Context, f func(trajectories.Summary, json.RawMessage) error) error {
	after := uint64(0)
	for {
		var list struct{ Groups []trajectories.Summary }
		if err := s.decode(ctx, fmt.Sprintf("/groups?after=%d", after), &list); err != nil {
			return err
		}
		if len(list.Groups) == 0 {
			return nil
		}
		for _, g := range list.Groups {
			after = g.ID
			body, err := s.get(ctx, fmt.Sprintf("/groups/%d", g.ID))
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				continue
			}
			text, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil {
				return fmt.Errorf("reading group %d: %w", g.ID, err)
			}
			if err := f(g, text); err != nil {
				return err
			}
		}
	}
}
