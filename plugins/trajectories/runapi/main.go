// Command runapi serves the trajectory API alone, for the conformance suite and the benchmark. Users run
// `recipe run-api`, which takes the same flags.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"github.com/recipe-rl/recipe/plugins/trajectories"
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
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o trajectories.RunOptions, profile string) error {
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
	return trajectories.Run(ctx, o, os.Stdout)
}
