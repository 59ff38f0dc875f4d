package trajectories

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// A group is recorded when it is posted, when a trainer takes it, and when the trainer tells what it computed.
//
//docs:survival.md samples can hardly be looked at
func TestTheRecordOfSamplesFollowsAGroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "samples")
	f := newFixture(t, Config{Samples: dir, SamplesLimits: samples.Limits{Bytes: 1 << 30},
		SamplesLost: func(err error) { t.Error(err) }, LimitStaleness: true, MaxStaleness: 1})
	f.trainer(2)
	env := f.env("sums", 2, `"weight":1`)
	post := func(version int) {
		f.ok("POST", "/scored_data", fmt.Sprintf(`{"tokens":[[5,6],[5,7]],"masks":[[-100,6],[-100,7]],"scores":[1,0],`+
			`"env_id":%d,"policy_version":%d,"task":{"v":1,"data":7}}`, env, version))
	}
	post(0)
	out := f.ok("GET", "/batch?lease=60s", "")
	id := out["id"].(string)
	if g := out["batch"].([]any)[0].(map[string]any); g["task"] != nil {
		t.Errorf("the trainer got the task, which is for the record: %v", g)
	}
	post(0)
	f.ok("POST", "/batch/"+id+"/ack", "{}")
	got := f.ok("POST", "/batch/"+id+"/trained",
		`{"step":9,"version":0,"groups":[{"index":0,"advantages":"AACAPwAAgL8="}]}`)
	if got["recorded"] != 1.0 {
		t.Errorf("the report was answered with %v", got)
	}
	for body, want := range map[string]int{`{"groups":[{"index":1}]}`: 422, `{"groups":7}`: 422} {
		if code, out := f.call("POST", "/batch/"+id+"/trained", body); code != want {
			t.Errorf("%s was answered with %d %v, expected %d", body, code, out, want)
		}
	}
	if code, _ := f.call("POST", "/batch/"+id[:strings.LastIndex(id, "-")]+"9-1/trained", `{}`); code != 404 {
		t.Errorf("an unknown batch was answered with %d", code)
	}
	f.ok("POST", "/policy_version", `{"version":5}`) // the second group is too old now
	if err := f.state.record.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := samples.NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	list, _ := r.Groups()
	if len(list) != 2 || list[0].Used == nil || list[0].Used.Step != 9 || list[1].Used != nil ||
		list[1].Dropped == nil || list[1].Dropped.Reason != "stale" || list[0].Environment != "sums_0" {
		t.Fatalf("recorded %+v", list)
	}
	body, computed, err := r.Body(list[0])
	if err != nil || !strings.Contains(string(body), `"tokens":[[5,6],[5,7]]`) ||
		!strings.Contains(string(body), `"task":{"v":1,"data":7}`) {
		t.Fatalf("the body is %s, %v", body, err)
	}
	if a := samples.Floats(computed.Advantages); len(a) != 2 || a[0] != 1 || a[1] != -1 {
		t.Errorf("the advantages are %v", a)
	}
}

// What a client packs is what the record gives back.
func TestFloatsArePackedAsTheRecordReadsThem(t *testing.T) {
	t.Parallel()
	if got := samples.Floats(trajectory.Floats([]float64{-0.5, 3})); len(got) != 2 || got[0] != -0.5 || got[1] != 3 {
		t.Errorf("got %v", got)
	}
}
