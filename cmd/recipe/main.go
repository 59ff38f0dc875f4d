// Command recipe declares, plans and runs RL post-training of language models. One file here is one command: flags in, a
// call of the engine, a view out.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}, os.Args[1:])
	stop()
	os.Exit(code)
}
