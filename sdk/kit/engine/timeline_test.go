package engine

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestStagesOfAStartAreTimed(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Unix(0, 0)
	clock := func() time.Time { return now }
	first := newTimeline(dir, "vllm-0", "importing vLLM", clock)
	if said := first.before(); said != "" {
		t.Errorf("at the first start it says %q of the last one", said)
	}
	for _, stage := range []string{"", "loading weights", "loading weights", "compiling"} {
		now = now.Add(10 * time.Second)
		first.enter(stage)
	}
	now = now.Add(400 * time.Millisecond)
	const want = "ready after 40.4 s: importing vLLM 20.0 s, loading weights 20.0 s, compiling 0.4 s"
	if said, err := first.end(); err != nil || said != want {
		t.Errorf("%q, %v\nwant %q", said, err, want)
	}
	first.enter("a line after the end")

	again := newTimeline(dir, "vllm-0", "importing vLLM", clock)
	if said := again.before(); said != " (20 s last time)" {
		t.Errorf("at the second start it says %q", said)
	}
	again.enter("compiling")
	if said := again.before(); said != "" {
		t.Errorf("of less than a second it says %q", said)
	}
	again.enter("a line after the end")
	if said := again.before(); said != "" {
		t.Errorf("of a stage that was not there it says %q", said)
	}
}

// A record that cannot be read or written does not prevent a start.
func TestAStartIsTimedWithoutTheLastOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vllm-0.starts.json"), []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	times := newTimeline(dir, "vllm-0", "importing vLLM", time.Now)
	if said := times.before(); said != "" {
		t.Errorf("it says %q", said)
	}
	if _, err := newTimeline(filepath.Join(dir, "gone"), "vllm-0", "importing vLLM", time.Now).end(); err == nil {
		t.Error("a folder that is not there took the record")
	}
}
