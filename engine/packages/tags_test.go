package packages

import (
	"context"
	"strings"
	"testing"
	"time"
)

// tagged is a repository of which only tags are asked.
type tagged struct {
	repository
	list []string
}

func (t tagged) tags(context.Context) ([]string, error) { return t.list, nil }

// TestLongTagsAreNoVersions: the parts of a version are numbers of any length, which take seconds to read.
func TestLongTagsAreNoVersions(t *testing.T) {
	t.Parallel()
	long := "1.0." + strings.Repeat("9", 1<<20)
	start := time.Now()
	known, err := releases(t.Context(), tagged{list: []string{long, "1.2.0", long, long, long, long, long}})
	if err != nil || len(known) != 1 || known[0].Original() != "1.2.0" {
		t.Errorf("got %d versions, %v; want 1.2.0", len(known), err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %s", took)
	}
}
