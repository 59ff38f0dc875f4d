// Command bench-agents is what the benchmarks of agents need besides Python: recipe's gateway by itself, an engine that
// takes a while to answer, and many programs at once. run.sh and load.sh use it.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/web"
)

const usage = `usage: bench-agents gateway PORT KEY FOLDER-OF-SESSIONS ENGINE-URL
       bench-agents engine PORT
       bench-agents open GATEWAY-URL KEY COUNT            base URLs and keys of new sessions, a line each
       bench-agents load NAME TURNS PID <LINES      programs, each with a line of open; PID serves them`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-agents:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n }
	switch {
	case len(args) == 5 && args[0] == "gateway":
		return serve(ctx, "127.0.0.1:"+args[1], args[2], args[3], args[4])
	case len(args) == 2 && args[0] == "engine":
		return engine(ctx, "127.0.0.1:"+args[1])
	case len(args) == 4 && args[0] == "open":
		return open(ctx, args[1], args[2], number(3))
	case len(args) == 4 && args[0] == "load":
		return load(ctx, args[1], number(2), number(3))
	}
	return fmt.Errorf("got %q\n%s", args, usage)
}

// serve runs recipe's gateway before an engine.
func serve(ctx context.Context, address, key, folder, engine string) error {
	g, err := gateway.New(gateway.Config{Address: address, Token: key, Sessions: folder,
		Cooldown: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	g.SetModels("policy")
	if err := g.SetReplicas([]gateway.Replica{{ID: "0", URL: engine}}); err != nil {
		return err
	}
	if err := g.Admit(ctx, "0", 0); err != nil {
		return err
	}
	return until(ctx, func() error { return g.Serve(context.Background()) }, g.Close)
}

// until runs a server to the end of ctx.
func until(ctx context.Context, run func() error, end func(context.Context) error) error {
	served := make(chan error, 1)
	go func() { served <- run() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return end(closing)
}

func listen(ctx context.Context, address string, h http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := web.NewServer(h)
	return until(ctx, func() error { return web.Serve(server, listener) }, server.Shutdown)
}
