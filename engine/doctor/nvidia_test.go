package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a driver (580.159.04, two H200, two programs on them) has printed for the queries of doctor is read whole.
func TestWhatARealDriverPrints(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"--query-gpu=name,memory.total,memory.used,driver_version": "gpus.csv",
		"--query-compute-apps=pid,used_memory,process_name":        "processes.csv",
	}
	m := healthy(t.TempDir())
	m.Run = func(_ context.Context, name string, args ...string) (string, error) {
		if name != "nvidia-smi" || len(args) != 2 || args[1] != "--format=csv,noheader,nounits" {
			t.Errorf("it ran %s %q", name, args)
		}
		text, err := os.ReadFile(filepath.Join("testdata", files[args[0]]))
		return string(text), err
	}
	cards, err := cardsOf(t.Context(), m)
	want := card{name: "NVIDIA H200", driver: "580.159.04", total: 143771 << 20}
	if err != nil || len(cards) != 2 || cards[0] != want || cards[1] != want {
		t.Errorf("GPUs %+v, %v", cards, err)
	}
	if f := gpuProcesses(t.Context(), m); f.Verdict != Warn ||
		!strings.Contains(f.Found, "pid 710 (/opt/torch/.venv/bin/python3, 4284 MiB)") ||
		!strings.Contains(f.Found, "pid 712 (/opt/torch/.venv/bin/python3, 4374 MiB)") {
		t.Errorf("processes: %+v", f)
	}
}
