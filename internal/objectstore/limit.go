package objectstore

import (
	"errors"
	"io"
	"net/http"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// What a store that answers without end may take of the memory: an answer that is no object, and the names of a folder.
const (
	maxAnswer = 16 << 20
	maxNames  = 64 << 20 // bytes
)

var errManyNames = errors.New("the names of the objects there have more than 64 MiB")

// limited is a transport whose answers have a limit, but for objects, which their readers bound.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil || r.Method == http.MethodGet && r.URL.RawQuery == "" && resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{bounded.Reader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
