package usage

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program that prints what nvidia-smi prints stands in for it: it is told what to print and how often.
func TestASampleHasTheMachineAndItsGPUs(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nfor a; do case $a in --loop-ms=20) loop=1;; --query-gpu=index,utilization.gpu,memory.used," +
		"memory.total,power.draw,temperature.gpu) query=1;; esac; done\n[ \"$loop$query\" = 11 ] || exit 2\n" +
		"while echo '0, 97, 1024, 81920, 350.5, 61' && echo '1, 3, 10, 81920, [N/A], 40'; do sleep 0.02; done\n"
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var found map[string]float64
	Watch(ctx, 20*time.Millisecond, func(m map[string]float64) {
		if found = m; m["gpu/1/"+MemoryUsed] > 0 {
			cancel()
		}
	})
	for name, want := range map[string]float64{"gpu/0/utilization": 0.97, "gpu/0/memory_used_bytes": 1 << 30,
		"gpu/0/memory_bytes": 80 << 30, "gpu/0/power_watts": 350.5, "gpu/1/temperature_celsius": 40} {
		if found[name] != want {
			t.Errorf("%s is %g, expected %g", name, found[name], want)
		}
	}
	if _, ok := found["gpu/1/power_watts"]; ok {
		t.Error("a value that a GPU does not have is reported")
	}
	if used, total := found[MemoryUsed], found[MemoryTotal]; used <= 0 || used >= total {
		t.Errorf("%g of %g bytes of memory are used", used, total)
	}
}

func TestWithoutADriverThereIsTheHostOnly(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	Watch(ctx, time.Millisecond, func(m map[string]float64) {
		for name := range m {
			if len(name) > 3 && name[:4] == "gpu/" {
				t.Errorf("there is %s", name)
			}
		}
		if m[MemoryTotal] > 0 {
			cancel()
		}
	})
	if ctx.Err() != context.Canceled {
		t.Error("no sample came")
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	if busy, ok := (processors{idle: 130, total: 200}).busy(processors{idle: 100, total: 100}); !ok || busy != 0.7 {
		t.Errorf("busy %g, %v", busy, ok)
	}
	if _, ok := (processors{idle: 130, total: 200}).busy(processors{}); ok {
		t.Error("one reading alone tells nothing")
	}
}

func FuzzCard(f *testing.F) {
	f.Add("0, 97, 1024, 81920, 350.5, 61")
	f.Add("No devices were found")
	f.Fuzz(func(t *testing.T, line string) {
		card, values := parseCard(line)
		if (card == "") != (values == nil) || len(values) >= len(query) {
			t.Errorf("%q is card %q with %v", line, card, values)
		}
	})
}

func TestALineOfAnotherFormIsNoCard(t *testing.T) {
	t.Parallel()
	if _, v := parseCard("Failed to initialize NVML: Driver/library version mismatch"); v != nil {
		t.Errorf("it is read as %v", v)
	}
	if _, v := parseCard("3, [N/A], 5, 7, x, "); !reflect.DeepEqual(v, map[string]float64{MemoryUsed: 5 << 20,
		MemoryTotal: 7 << 20}) {
		t.Errorf("it is read as %v", v)
	}
}
