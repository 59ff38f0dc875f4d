package evaluation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk"
)

// The completions of an evaluation are a record that the views of a run read, and old ones make room.
func TestRecord(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var last string
	for i := range recordsKept + 2 {
		r, err := NewRecord(run, "sums", now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		r.Add(sdk.TaskScore{Task: 4, Versions: []int64{7, 7}, Group: json.RawMessage(
			`{"tokens":[[1,2],[1,2,3]],"masks":[[-100,2],[-100,2,3]],"scores":[0,1],"policy_version":7}`)})
		r.Add(sdk.TaskScore{Task: 5}) // no tokens are known
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		last = r.Dir
	}
	kept, err := os.ReadDir(filepath.Join(run, "samples"))
	if err != nil || len(kept) != recordsKept || !samples.OfEvaluation(kept[0].Name()) {
		t.Errorf("%d records are kept (%v), want %d", len(kept), err, recordsKept)
	}
	reader, err := samples.NewReader(last)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.Refresh(); err != nil {
		t.Fatal(err)
	}
	list, lost := reader.Groups()
	if len(list) != 1 || lost != 0 {
		t.Fatalf("%d groups, %d lost", len(list), lost)
	}
	if g := list[0]; g.ID != 5 || g.Environment != "sums (held out)" || g.Tokens != 5 || g.Longest != 3 || g.Mean != 0.5 ||
		fmt.Sprint(g.Versions) != "[7 7]" {
		t.Errorf("the group is %+v", g)
	}
	var none *Record
	none.Add(sdk.TaskScore{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
