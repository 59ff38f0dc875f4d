package agent

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/usage"
)

// usage reports how far this machine is used until the engine closes the stream.
func (a *Agent) usage(ctx context.Context, every time.Duration) (then func(net.Conn), err error) {
	if every <= 0 {
		return nil, errors.New("the interval of samples must be positive")
	}
	return func(c net.Conn) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, c) // the engine says nothing: this ends with the stream
			cancel()
		}()
		devices, limited := os.LookupEnv("CUDA_VISIBLE_DEVICES")
		usage.Watch(ctx, every, func(m map[string]float64) {
			if limited {
				m = ofTheJob(m, devices)
			}
			if writeLine(c, m) != nil {
				cancel()
			}
		})
	}, nil
}

// ofTheJob leaves out the GPUs that are not the job's. nvidia-smi lists all, unless the cluster hides the others, and
// then their numbers begin at 0 in CUDA_VISIBLE_DEVICES, too. A list of other things than numbers tells nothing.
func ofTheJob(m map[string]float64, devices string) map[string]float64 {
	given := strings.Split(devices, ",")
	for i := range given {
		given[i] = strings.TrimSpace(given[i])
		if _, err := strconv.Atoi(given[i]); err != nil && devices != "" {
			return m
		}
	}
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(name string, _ float64) bool {
		card, ok := usage.CardOf(name)
		return ok && !slices.Contains(given, card)
	})
	return out
}
