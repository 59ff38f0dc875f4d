package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/recipe-rl/recipe/cmd/recipe/live"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
	enginerun "github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// runView shows a run while it goes on: as plain lines, or filling the terminal.
type runView interface {
	Follow(ctx context.Context, dir string) (*snapshot.Snapshot, error)
	Lost(func(error))
	Draining()
	Killing()
	Leave()
}

var (
	_ runView = (*view.Live)(nil)
	_ runView = (*live.View)(nil)
)

// viewOf chooses how a run is shown: plain lines, unless a person sits at a terminal and wants no lines. CtrlC is as in
// live.Options, and so is the address of the dashboard.
func (a *app) viewOf(dir state.Dir, name string, since time.Time, plain bool, dashboard string, ctrlC func()) runView {
	in, out := a.keyboard(), a.screen()
	if plain || in == nil || out == nil {
		return view.NewLive(a.out, a.style(), since)
	}
	return live.New(live.Options{In: in, Out: out, Environ: a.environ, Style: a.style(), Name: name, Dir: dir,
		Since: since, Commands: runCommands{dir}, Dashboard: dashboard, CtrlC: ctrlC})
}

// screen is the terminal that is written to; nil: it is none, or a dumb one.
func (a *app) screen() *os.File {
	out, ok := view.TerminalOf(a.out)
	if !ok || !a.style().Terminal {
		return nil
	}
	return out
}

// keyboard is the terminal that is read from; nil: it is none, or belongs to another job of the shell, which would stop
// this process when it reads.
func (a *app) keyboard() *os.File {
	in, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	if group, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil
	}
	return in
}

// runCommands are the keys of the live view that change the run.
type runCommands struct{ dir state.Dir }

// commandWithin bounds a command that was given by a key.
const commandWithin = 30 * time.Minute

// do calls the engine of the run.
func (c runCommands) do(what string, call func(context.Context, *session.Client) (string, error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
	defer cancel()
	if err := session.Belongs(ctx, c.dir, enginerun.Processes{}); err != nil {
		return what + ": " + err.Error()
	}
	client, err := session.Dial(ctx, c.dir)
	if err != nil {
		return what + ": " + err.Error()
	}
	defer client.Close()
	done, err := call(ctx, client)
	if err != nil {
		return what + ": " + err.Error()
	}
	return done
}

// Stop implements live.Commands.
func (c runCommands) Stop() string {
	return c.do("stop", func(ctx context.Context, client *session.Client) (string, error) {
		return view.StoppingText, client.Stop(ctx, "stopped in the live view", false)
	})
}

// Pause implements live.Commands.
func (c runCommands) Pause(paused bool) string {
	what := map[bool]string{true: "pause", false: "resume"}[paused]
	return c.do(what, func(ctx context.Context, client *session.Client) (string, error) {
		return what + "d", client.Pause(ctx, paused)
	})
}

// Restart implements live.Commands.
func (c runCommands) Restart(address string) string {
	return c.do("restart", func(ctx context.Context, client *session.Client) (string, error) {
		block, err := addr.Parse(address)
		if err != nil {
			return "", err
		}
		return address + " is restarting", client.Restart(ctx, block)
	})
}

// Checkpoint implements live.Commands.
func (c runCommands) Checkpoint(address string) string {
	return c.do("checkpoint", func(ctx context.Context, client *session.Client) (string, error) {
		block, err := addr.Parse(address)
		if err != nil {
			return "", err
		}
		saved, err := client.Checkpoint(ctx, block)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("saved step %d in %s", saved.Step, saved.Path), nil
	})
}
