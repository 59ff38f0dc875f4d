package run_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
)

// answerKey makes the test binary a server that answers everything: the external server of many blocks, in another
// process so that its work does not count as the engine's.
const answerKey = "RECIPE_BENCH_SERVER"

func answerAll() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"data": []}`)
	}))
	return 1
}

func externalServer(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), answerKey+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line)
}

// BenchmarkManyBlocks applies a recipe of external blocks and measures the time until all of them are ready and
// recorded, what is written meanwhile, the slowest answer to a status order, a plan of the live run, the idle engine,
// and a stop.
//
//	go test -run '^$' -bench ManyBlocks -benchtime 1x ./engine/run
func BenchmarkManyBlocks(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			server := externalServer(b)
			for b.Loop() {
				manyBlocks(b, n, server)
			}
		})
	}
}

func manyBlocks(b *testing.B, n int, server string) {
	root := b.TempDir()
	path := filepath.Join(root, "r.hcl")
	src := fmt.Sprintf("inference \"x\" \"p\" {\n  count = %d\n  model = \"m\"\n  external { endpoint = %q }\n}\n", n,
		server)
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		b.Fatal(err)
	}
	f := &fixture{t: b, root: root, dir: state.DirOf(root, "r"), plug: fakePlugins(b)}
	f.host = newFakeHost(f.plug)
	r := f.load(src)
	ctx := context.Background()
	e, err := run.Open(ctx, run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host, Plugins: f.plug,
		Command: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	p := f.plan(r, e)
	wroteBefore, cpuBefore, begun := written(b), cpuTime(b), time.Now()
	done := make(chan error, 1)
	go func() { _, err := e.Apply(ctx, r, p); done <- err }()

	var ready, recorded, slowest time.Duration
	for recorded == 0 {
		if time.Since(begun) > 10*time.Minute {
			b.Fatal("not ready after 10 minutes")
		}
		asked := time.Now()
		rec, seen, err := e.Live(ctx)
		if err != nil {
			b.Fatal(err)
		}
		slowest = max(slowest, time.Since(asked))
		up, written := 0, 0
		for _, o := range seen {
			if o.Phase == string(sdk.Ready) {
				up++
			}
		}
		if up == n && ready == 0 {
			ready = time.Since(begun)
		}
		for _, blk := range rec.Blocks {
			if blk.Phase == string(sdk.Ready) {
				written++
			}
		}
		if written == n {
			onDisk, err := state.Read(f.dir)
			if err != nil {
				b.Fatal(err)
			}
			recorded = time.Since(begun)
			for _, blk := range onDisk.Blocks {
				if blk.Phase != string(sdk.Ready) {
					recorded = 0
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	wrote, spent := written(b)-wroteBefore, cpuTime(b)-cpuBefore

	asked := time.Now()
	rec, seen, err := e.Live(ctx)
	if err == nil {
		_, err = plan.Make(plan.Input{Recipe: r, Recorded: rec, Observed: seen, Dir: f.dir})
	}
	if err != nil {
		b.Fatal(err)
	}
	planned := time.Since(asked)

	const idle = 15 * time.Second
	cpu := cpuTime(b)
	time.Sleep(idle)
	busy := float64(cpuTime(b)-cpu) / float64(idle)

	asked = time.Now()
	if err := e.Stop(ctx, "enough"); err != nil {
		b.Fatal(err)
	}
	slowest = max(slowest, time.Since(asked))
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	stopped := time.Since(asked)
	var logged int64
	files, _ := filepath.Glob(filepath.Join(f.dir.Events(), "*"))
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			logged += info.Size()
		}
	}
	if ready == 0 {
		ready = recorded
	}
	b.ReportMetric(ready.Seconds(), "ready-s")
	b.ReportMetric(recorded.Seconds(), "recorded-s")
	b.ReportMetric(spent.Seconds(), "cpu-s")
	b.ReportMetric(float64(wrote)/1e6, "written-MB")
	b.ReportMetric(slowest.Seconds()*1000, "slowest-order-ms")
	b.ReportMetric(planned.Seconds()*1000, "plan-ms")
	b.ReportMetric(busy*100, "idle-%core")
	b.ReportMetric(stopped.Seconds()*1000, "stop-ms")
	b.ReportMetric(float64(logged)/1e6, "log-MB")
	b.ReportMetric(0, "ns/op")
}

// written is how many bytes this process has sent to disks.
func written(t testing.TB) int64 {
	t.Helper()
	f, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("needs /proc/self/io")
	}
	_, after, _ := strings.Cut(string(f), "\nwrite_bytes: ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
