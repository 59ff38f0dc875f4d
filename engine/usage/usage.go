// Package usage samples how far this machine's processors, memory and NVIDIA GPUs are used.
package usage

import (
	"context"
	"maps"
	"time"
)

// Every is the time between two samples.
const Every = 10 * time.Second

// Names of metrics. Those of a GPU follow gpu/N/, N being its index in nvidia-smi.
const (
	CPU         = "cpu" // busy part of all processors, 0 to 1
	MemoryUsed  = "memory_used_bytes"
	MemoryTotal = "memory_bytes"
	Utilization = "utilization" // of a GPU: part of the time in which a kernel ran, 0 to 1
	Power       = "power_watts"
	Temperature = "temperature_celsius"
)

// Watch reports a sample at each interval until ctx ends. A machine without nvidia-smi has no metrics of GPUs.
func Watch(ctx context.Context, every time.Duration, report func(map[string]float64)) {
	cards := newGPUs(ctx, every)
	defer cards.close()
	var before processors
	before, _ = readProcessors()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found := cards.newest()
		if now, err := readProcessors(); err == nil {
			if busy, ok := now.busy(before); ok {
				found[CPU] = busy
			}
			before = now
		}
		if total, available, err := Memory(); err == nil {
			found[MemoryTotal], found[MemoryUsed] = float64(total), float64(total-min(available, total))
		}
		if len(found) > 0 {
			report(maps.Clone(found))
		}
	}
}

// processors are times of all processors together since the machine has started, in any unit.
type processors struct{ idle, total float64 }

// busy is the busy part of the time since another reading.
func (p processors) busy(before processors) (part float64, ok bool) {
	total := p.total - before.total
	if before.total == 0 || total <= 0 {
		return 0, false
	}
	return max(0, min(1, 1-(p.idle-before.idle)/total)), true
}
