// Package storetest is a store with Amazon's S3 interface inside a test, which can be slow, refuse and be away. A real
// one runs in `make e2e-s3`.
package storetest

import (
	"bufio"
	"crypto/md5" //nolint:gosec // an ETag
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Bucket is the one that the store has.
const Bucket = "runs"

// Store is one store.
type Store struct {
	URL string // of the bucket: s3://…

	mu      sync.Mutex
	objects map[string][]byte
	refuse  func(r *http.Request) (status int, code string) // status 0: it does not
}

// New starts a store until the test ends, and gives the test's process keys.
func New(t *testing.T) *Store {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "reader")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-reader")
	s := &Store{objects: map[string][]byte{}}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.URL = "s3://" + Bucket + "/some/folder?region=here&endpoint=" + server.URL
	return s
}

// Refuse sets what is refused from now on; nil: nothing.
func (s *Store) Refuse(f func(r *http.Request) (status int, code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Names are those of all objects, in order.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Change replaces the content of an object, or removes it when f is nil.
func (s *Store) Change(name string, f func([]byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil {
		delete(s.objects, name)
		return
	}
	s.objects[name] = f(slices.Clone(s.objects[name]))
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if status, code := s.refuse(r); status != 0 {
			fail(w, status, code)
			return
		}
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case bucket != Bucket:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case name == "" && r.URL.Query().Has("uploads"):
		_, _ = io.WriteString(w, `<ListMultipartUploadsResult></ListMultipartUploadsResult>`)
	case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
		_, _ = io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodDelete && r.URL.Query().Has("uploadId"):
		w.WriteHeader(http.StatusNoContent)
	case name == "":
		s.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut:
		content, err := body(r)
		if err != nil {
			fail(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.objects[name] = content
		w.Header().Set("ETag", etag(content))
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case s.objects[name] == nil:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", etag(s.objects[name]))
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(len(s.objects[name])))
		_, _ = w.Write(s.objects[name])
	}
}

func etag(content []byte) string {
	sum := md5.Sum(content) //nolint:gosec // S3's
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code><Message>as the test wants it</Message></Error>`, code)
}

func (s *Store) list(w http.ResponseWriter, prefix string) {
	type object struct {
		Key          string
		Size         int
		LastModified string
	}
	result := struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Name     string
		Contents []object
	}{Name: Bucket}
	for name, content := range s.objects {
		if strings.HasPrefix(name, prefix) {
			result.Contents = append(result.Contents, object{name, len(content), "2006-01-02T15:04:05.000Z"})
		}
	}
	slices.SortFunc(result.Contents, func(a, b object) int { return strings.Compare(a.Key, b.Key) })
	_ = xml.NewEncoder(w).Encode(result)
}

// body reads the content of a request, which may come in signed chunks: SIZE;chunk-signature=…, content, empty line.
func body(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	from, out := bufio.NewReader(r.Body), []byte{}
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n == 0 {
			return out, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(from, chunk); err != nil {
			return nil, err
		}
		out = append(out, chunk[:n]...)
	}
}
