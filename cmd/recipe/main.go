// Command recipe declares, plans and runs RL post-training of language models. One file here is one command: flags in,
// a call of the engine, a view out.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/recipe-rl/recipe/cmd/recipe/boxed" // is the first process of a sandbox
	_ "github.com/recipe-rl/recipe/cmd/recipe/early" // answers `recipe version`
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

func main() { os.Exit(program(doctor.Local)) }

// program is main with an exit code, so that tests can run it as a command of its own, on a machine of their own.
func program(machine func(dir string) doctor.Machine) int {
	// The engine starts a built-in plugin by starting this binary again. Definitions are made only then: making them
	// reads every plugin's schema, which no `recipe version` should wait for.
	if _, plugin := os.LookupEnv(protocol.BuiltinKey); plugin {
		script.Serve()
		sdk.ServeBuiltin(builtins())
	}
	trust.HideEnvironment()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks a command to end. A later one ends the program wherever it is, unless the command listens
	// to signals itself.
	context.AfterFunc(ctx, func() { time.AfterFunc(together, stop) })
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	a.endAtSignals, a.machine = stop, machine
	if len(os.Args) == 3 && os.Args[1] == complianceCommand {
		return serveCompliance(a, os.Args[2:], os.Stderr)
	}
	return execute(ctx, a, os.Args[1:])
}
