package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A server of the standard library waits without limit; those of internal/web have limits.
func TestEveryHTTPServerHasLimits(t *testing.T) {
	t.Parallel()
	bare := regexp.MustCompile(`http\.Server\{|http\.(ListenAndServe|Serve)(TLS)?\(|httputil\.NewServerConn`)
	seen := 0
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if at := bare.Find(text); at != nil && !strings.HasPrefix(path, "internal/web/") {
			t.Errorf("%s says %s: make the server with internal/web, whose limits end clients that stall", path, at)
		}
	})
	if seen < 100 {
		t.Errorf("%d files were looked at", seen)
	}
}
