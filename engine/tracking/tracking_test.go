package tracking_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/schema/decode"
)

const trainer = "trainer.tiny.policy"

// ran is a run directory whose log has steps first to last.
type ran struct {
	t   *testing.T
	dir state.Dir
	log *event.Log
}

func newRan(t *testing.T) *ran {
	t.Helper()
	dir := state.Dir(filepath.Join(t.TempDir(), ".recipe", "sums"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	log, err := event.Open(dir.Events())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return &ran{t, dir, log}
}

func (r *ran) steps(first, last int) {
	r.t.Helper()
	for step := first; step <= last; step++ {
		for _, e := range []event.Event{
			{Type: event.Metrics, Address: trainer, Step: int64(step),
				Metrics: map[string]float64{"reward": float64(step) / 4}},
			{Type: event.Sample, Address: "environment.arithmetic.sums", Prompt: "1+1=",
				Completion: fmt.Sprint("is ", step), Score: 1, Version: int64(step)},
		} {
			if _, err := r.log.Append(e); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := r.log.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// pass passes the run on to a tracker, as one engine does, and returns what that had to say.
func (r *ran) pass(tr decode.Tracking) (notices []string) {
	r.t.Helper()
	followed, err := tracking.Start(r.t.Context(), r.options(tr, func(e event.Event) {
		notices = append(notices, e.Message)
	}))
	if err != nil {
		r.t.Fatal(err)
	}
	followed.Stop()
	return notices
}

func (r *ran) options(tr decode.Tracking, record func(event.Event)) tracking.Options {
	tr.Name = "x"
	return tracking.Options{Trackers: []decode.Tracking{tr}, Dir: r.dir, Recipe: "sums", RunID: "r-17", Record: record,
		Secrets: func(...string) {}, Config: map[string]any{trainer: map[string]any{"learning_rate": 0.25}}}
}

// Every value is in the files of TensorBoard once, over two engines.
func TestTensorBoardFiles(t *testing.T) {
	t.Parallel()
	r := newRan(t)
	for _, e := range machines {
		if _, err := r.log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		r.steps(3*i+1, 3*i+3)
		if said := r.pass(decode.Tracking{Tracker: "tensorboard"}); len(said) > 0 {
			t.Errorf("it said %q", said)
		}
	}
	files, err := filepath.Glob(filepath.Join(string(r.dir), "tracking", "tensorboard.x", "files",
		"events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files: %v, %v", files, err)
	}
	var steps []int
	for _, f := range files {
		for step, value := range scalars(t, f, trainer+"/reward") {
			if value != float32(step)/4 {
				t.Errorf("step %d has %v", step, value)
			}
			steps = append(steps, step)
		}
	}
	if sort.Ints(steps); !reflect.DeepEqual(steps, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("steps %v", steps)
	}
	sort.Strings(files) // the older one first
	for tag, want := range map[string]float32{"machine/cpu": 0.5, "machine/n1/" + trainer + "/cpu": 0.25} {
		if got := slices.Collect(maps.Values(scalars(t, files[0], tag))); !slices.Equal(got, []float32{want}) {
			t.Errorf("%s is %v, expected %v", tag, got, want)
		}
	}
}

// A tracker gets the events of a log all of whose earlier files were deleted between two engines.
//
//docs:survival.md all files of the event log are deleted between two applies
func TestATrackerOutlivesADeletedLog(t *testing.T) {
	t.Parallel()
	r := newRan(t)
	r.steps(1, 3)
	r.pass(decode.Tracking{Tracker: "tensorboard"})
	if err := errors.Join(r.log.Close(), os.RemoveAll(r.dir.Events())); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.log, err = event.OpenAfter(r.dir.Events(), tracking.Reached(r.dir)); err != nil {
		t.Fatal(err)
	}
	r.steps(4, 6)
	r.pass(decode.Tracking{Tracker: "tensorboard"})
	files, err := filepath.Glob(filepath.Join(string(r.dir), "tracking", "tensorboard.x", "files", "events.out.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files: %v, %v", files, err)
	}
	sort.Strings(files)
	if got := scalars(t, files[1], trainer+"/reward"); len(got) != 3 {
		t.Errorf("the second file has steps %v, want 4 to 6", got)
	}
}

// machines are samples of the engine's machine and of one of a job.
var machines = []event.Event{
	{Type: event.Machine, Metrics: map[string]float64{"cpu": 0.5}},
	{Type: event.Machine, Address: trainer, Host: "n1", Metrics: map[string]float64{"cpu": 0.25}},
}

// scalars reads the values of a tag from an event file, and checks its checksums.
func scalars(t *testing.T, path, tag string) map[int]float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	masked := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	out := map[int]float32{}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		body := data[12 : 12+n]
		if binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) ||
			binary.LittleEndian.Uint32(data[12+n:]) != masked(body) {
			t.Fatalf("%s: a checksum is wrong", path)
		}
		data = data[16+n:]
		top := fields(t, body)
		if len(top[5]) == 0 {
			continue
		}
		step, _ := protowire.ConsumeVarint(top[2])
		for summary := top[5]; len(summary) > 0; {
			_, _, m := protowire.ConsumeTag(summary)
			value, k := protowire.ConsumeBytes(summary[m:])
			summary = summary[m+k:]
			if v := fields(t, value); string(v[1]) == tag {
				bits, _ := protowire.ConsumeFixed32(v[2])
				out[int(step)] = math.Float32frombits(bits)
			}
		}
	}
	return out
}

// fields are the last values of the fields of a message, those of bytes without their length.
func fields(t *testing.T, m []byte) map[protowire.Number][]byte {
	t.Helper()
	out := map[protowire.Number][]byte{}
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		size := protowire.ConsumeFieldValue(number, kind, m[n:])
		if n < 0 || size < 0 {
			t.Fatal("not a message")
		}
		value := m[n : n+size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		out[number] = value
		m = m[n+size:]
	}
	return out
}

// A folder that cannot be written costs warnings and not the run; what is left is passed on when it can be.
func TestATrackerThatCannotWrite(t *testing.T) {
	t.Parallel()
	r := newRan(t)
	r.steps(1, 2)
	dir := filepath.Join(t.TempDir(), "tb")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tr := decode.Tracking{Tracker: "tensorboard", Dir: dir}
	if said := r.pass(tr); len(said) == 0 || !strings.Contains(said[0], "tracking.tensorboard.x is degraded") {
		t.Errorf("it said %q", said)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if said := r.pass(tr); len(said) > 0 {
		t.Errorf("it said %q", said)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 || len(scalars(t, files[0], trainer+"/reward")) != 2 {
		t.Errorf("files: %v, %v", files, err)
	}
}

// TestTensorBoardReadsIt reads with TensorBoard's own package. `make test-trackers` runs it.
func TestTensorBoardReadsIt(t *testing.T) {
	t.Parallel()
	python := os.Getenv("RECIPE_TRACKERS_PYTHON")
	if python == "" {
		t.Skip("RECIPE_TRACKERS_PYTHON is not set: make test-trackers sets it")
	}
	r := newRan(t)
	for i := range 2 {
		r.steps(30*i+1, 30*i+30)
		if said := r.pass(decode.Tracking{Tracker: "tensorboard"}); len(said) > 0 {
			t.Fatalf("it said %q", said)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "read.py"),
		filepath.Join(string(r.dir), "tracking", "tensorboard.x", "files"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read back: %v\n%s", err, out)
	}
	var got struct {
		Reward map[int]float64 // by step
		Texts  map[int]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[int]float64{}
	for step := 1; step <= 60; step++ {
		want[step] = float64(step) / 4
	}
	if !reflect.DeepEqual(got.Reward, want) || !strings.Contains(got.Texts[1], "is 1") {
		t.Errorf("%d rewards, at step 1 the text %q (the log writes one sample a minute)", len(got.Reward), got.Texts[1])
	}
}
