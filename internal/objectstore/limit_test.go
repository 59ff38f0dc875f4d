package objectstore_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/objectstore"
)

// A store that answers without end fills no memory.
func TestAnswersOfAStoreHaveALimit(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "reader")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-reader")
	page := func(names int) string {
		var b strings.Builder
		for i := range names {
			_, _ = fmt.Fprintf(&b, "<Contents><Key>%s%d</Key></Contents>", strings.Repeat("x", 500), i)
		}
		return b.String()
	}
	tests := []struct {
		name  string
		serve func(w io.Writer) error
		want  string
	}{
		{"a page without end", func(w io.Writer) (err error) {
			text := page(1000)
			for err == nil {
				_, err = io.WriteString(w, text)
			}
			return err
		}, "too large"},
		{"a name without end", func(w io.Writer) (err error) {
			for _, err = io.WriteString(w, "<Contents><Key>"); err == nil; {
				_, err = io.WriteString(w, strings.Repeat("x", 1<<20))
			}
			return err
		}, "too large"},
		{"pages without end", func(w io.Writer) error {
			_, err := io.WriteString(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"+
				strings.Repeat("<Contents><Key>"+strings.Repeat("x", 1<<20)+"</Key></Contents>", 8)+"</ListBucketResult>")
			return err
		}, "more than 64 MiB"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if _, err := io.WriteString(w, "<ListBucketResult>"); err == nil {
					_ = tc.serve(w) // it ends when the client has left
				}
			}))
			defer server.Close()
			at, err := objectstore.Parse("s3://runs/a?region=here&endpoint=" + server.URL)
			if err != nil {
				t.Fatal(err)
			}
			bucket, err := objectstore.Open(at)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = bucket.List(t.Context(), "")
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %.300v, want %q", err, tc.want)
			}
			if taken := (after.Sys - before.Sys) >> 20; taken > 1024 {
				t.Errorf("it took %d MiB", taken)
			}
		})
	}
}
