package usage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// query is what nvidia-smi is asked for, in order, with the factor to our unit.
var query = []struct {
	field, metric string
	factor        float64
}{
	{"index", "", 1},
	{"utilization.gpu", Utilization, 0.01},
	{"memory.used", MemoryUsed, 1 << 20},
	{"memory.total", MemoryTotal, 1 << 20},
	{"power.draw", Power, 1},
	{"temperature.gpu", Temperature, 1},
}

// gpus follows one nvidia-smi, which prints a line for each GPU at each interval: its start takes longer than a
// sample. It ends when nobody reads what it prints.
type gpus struct {
	stop context.CancelFunc
	wait sync.WaitGroup

	mu   sync.Mutex
	last map[string]float64
	at   time.Time
	old  time.Duration // age beyond which what it has printed is no longer current
}

func newGPUs(ctx context.Context, every time.Duration) *gpus {
	ctx, stop := context.WithCancel(ctx)
	g := &gpus{stop: stop, last: map[string]float64{}, old: 3 * every}
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return g
	}
	var fields []string
	for _, q := range query {
		fields = append(fields, q.field)
	}
	cmd := exec.CommandContext(ctx, path, "--query-gpu="+strings.Join(fields, ","), "--format=csv,noheader,nounits",
		fmt.Sprintf("--loop-ms=%d", every.Milliseconds()))
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return g
	}
	g.wait.Go(func() {
		g.read(out)
		_ = cmd.Wait() // a driver that fails ends it; then there are no more samples
	})
	return g
}

func (g *gpus) close() {
	g.stop()
	g.wait.Wait()
}

func (g *gpus) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		card, values := parseCard(lines.Text())
		g.mu.Lock()
		for name, v := range values {
			g.last["gpu/"+card+"/"+name] = v
		}
		g.at = time.Now()
		g.mu.Unlock()
	}
}

// newest is the newest sample of each GPU; empty when there is none, or none of late.
func (g *gpus) newest() map[string]float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) > g.old {
		return map[string]float64{}
	}
	return maps.Clone(g.last)
}

// CardOf is the index of the GPU that a metric is of.
func CardOf(metric string) (card string, ok bool) {
	rest, ok := strings.CutPrefix(metric, "gpu/")
	if !ok {
		return "", false
	}
	card, _, ok = strings.Cut(rest, "/")
	return card, ok
}

// parseCard reads one line. A value that a GPU does not have ("[N/A]") is left out.
func parseCard(line string) (card string, values map[string]float64) {
	fields := strings.Split(line, ",")
	if len(fields) != len(query) {
		return "", nil
	}
	card = strings.TrimSpace(fields[0])
	if _, err := strconv.Atoi(card); err != nil {
		return "", nil
	}
	values = map[string]float64{}
	for i, q := range query[1:] {
		if v, err := strconv.ParseFloat(strings.TrimSpace(fields[i+1]), 64); err == nil {
			values[q.metric] = v * q.factor
		}
	}
	return card, values
}
