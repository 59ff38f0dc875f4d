package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/engine/sizing"
)

// errNoDriver means that this machine has no NVIDIA GPU, as far as a program can tell.
var errNoDriver = errors.New("no nvidia-smi on PATH")

// card is one GPU; memory is in bytes.
type card struct {
	name, driver string
	total, used  float64
}

func cardsOf(ctx context.Context, m Machine) ([]card, error) {
	path, err := m.LookPath("nvidia-smi")
	if err != nil {
		return nil, errNoDriver
	}
	out, err := m.Run(ctx, path, "--query-gpu=name,memory.total,memory.used,driver_version",
		"--format=csv,noheader,nounits")
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi fails: %s", reason(ctx, err))
	}
	var cards []card
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		fields := strings.Split(line, ",")
		if len(fields) != 4 {
			return nil, fmt.Errorf("unexpected output of nvidia-smi: %q", line)
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		total, errTotal := strconv.ParseFloat(fields[1], 64)
		used, errUsed := strconv.ParseFloat(fields[2], 64)
		if err := errors.Join(errTotal, errUsed); err != nil {
			return nil, fmt.Errorf("unexpected output of nvidia-smi: %q", line)
		}
		cards = append(cards, card{name: fields[0], driver: fields[3], total: total * (1 << 20),
			used: used * (1 << 20)})
	}
	return cards, nil
}

// visible are the GPUs that programs started here may use: those of CUDA_VISIBLE_DEVICES, or all. A scheduler such as
// Slurm assigns GPUs to a job this way.
func visible(m Machine, cards int) (names []string) {
	list, set := m.LookupEnv("CUDA_VISIBLE_DEVICES")
	if !set {
		for i := range cards {
			names = append(names, strconv.Itoa(i))
		}
		return names
	}
	for _, n := range strings.Split(list, ",") {
		n = strings.TrimSpace(n)
		if i, err := strconv.Atoi(n); n == "" || (err == nil && (i < 0 || i >= cards)) {
			break // CUDA ignores everything after an invalid entry
		}
		names = append(names, n)
	}
	return names
}

func numbered(devices []string) bool {
	return !slices.ContainsFunc(devices, func(n string) bool { _, err := strconv.Atoi(n); return err != nil })
}

// Hardware is what the sizing of a plan compares needs with: the smallest of the GPUs, and the disk at m.Dir. Zero
// means unknown: a plan may be made on another machine than the one that runs it.
func Hardware(ctx context.Context, m Machine) sizing.Machine {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var h sizing.Machine
	cards, err := cardsOf(ctx, m)
	h.NoGPU = errors.Is(err, errNoDriver) || (err == nil && len(visible(m, len(cards))) == 0)
	if err == nil && len(cards) > 0 {
		h.Devices, h.GPUMemory = visible(m, len(cards)), math.Inf(1)
		for i, c := range cards {
			// UUIDs in the list match no index: then every card counts.
			if named := slices.Contains(h.Devices, strconv.Itoa(i)); named || !numbered(h.Devices) {
				h.GPUMemory = min(h.GPUMemory, c.total)
			}
		}
		if math.IsInf(h.GPUMemory, 1) {
			h.GPUMemory = 0
		}
	}
	if free, err := m.Disk(m.Dir); err == nil {
		h.DiskFree = float64(free)
	}
	return h
}

// GPUs names the GPUs of a machine with their driver; none where there are none or they do not answer.
func GPUs(ctx context.Context, m Machine) (names []string, driver string) {
	cards, err := cardsOf(ctx, m)
	if err != nil {
		return nil, ""
	}
	for _, c := range cards {
		names, driver = append(names, c.name), c.driver
	}
	return names, driver
}
