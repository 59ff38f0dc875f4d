// Command runapi serves the trajectory API alone, for the conformance suite and the benchmark. Users run
// `recipe run-api`, which takes the same flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/plugins/trajectories/archive"
	"github.com/recipe-rl/recipe/sdk"
)

func main() {
	var o trajectories.RunOptions
	flag.StringVar(&o.Host, "host", "127.0.0.1", "address to listen on")
	flag.IntVar(&o.Port, "port", 8000, "port to listen on")
	flag.StringVar(&o.Dir, "dir", "", "folder of the disk store; empty keeps everything in memory")
	flag.StringVar(&o.Store, "store", "", "disk or memory")
	flag.StringVar(&o.Sync, "sync", "", "always or never")
	flag.StringVar(&o.Compression, "compression", "", "auto, always or never")
	flag.StringVar(&o.Batching, "batching", "", "fair or compatible")
	flag.StringVar(&o.Token, "token", "", "token to require")
	flag.BoolVar(&o.Insecure, "insecure", false, "listen beyond this machine without a token")
	flag.IntVar(&o.MaxQueueGroups, "max-queue-groups", 0, "groups to hold at most")
	flag.StringVar(&o.Samples, "samples", "", "folder to record samples in; empty: none are recorded")
	flag.Int64Var(&o.SamplesLimits.Bytes, "samples-bytes", 2<<30, "size on disk of that folder")
	store := flag.String("samples-store", "", "s3://BUCKET/FOLDER to copy that folder to")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *store, *profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o trajectories.RunOptions, store, profile string) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if store == "" {
		return trajectories.Run(ctx, o, os.Stdout)
	}
	a, err := archive.Open(ctx, store, o.Samples, sdk.Block{RunID: "run", Address: "trajectories.builtin.bench"}, host{},
		archive.Usual)
	if err != nil {
		return err
	}
	err = trajectories.Run(ctx, o, os.Stdout)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, a.Close(closing))
}

// host is that of the copies: it prints what is said.
type host struct{}

func (host) Log(level, message string) { fmt.Fprintln(os.Stderr, level, message) }

func (host) Begin(a sdk.Activity) *sdk.Ongoing { return sdk.NewOngoing(a, func(*sdk.Ongoing) {}) }
