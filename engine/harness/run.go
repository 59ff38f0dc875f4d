package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// Installed is the version of the harness in a Python.
func (h *Harness) Installed(ctx context.Context, python string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dist, _, _ := strings.Cut(h.Package, " ")
	dist, _, _ = strings.Cut(dist, "[")
	cmd := exec.CommandContext(ctx, python, "-c",
		"import sys, importlib.util as u, importlib.metadata as m\n"+
			"print(m.version(sys.argv[2]) if u.find_spec(sys.argv[1]) else '')", h.Module, dist)
	cmd.WaitDelay = time.Second
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	version := strings.TrimSpace(out.String())
	if err == nil && version != "" {
		return version, nil
	}
	words := strings.Fields(h.Package)
	for i, w := range words {
		words[i] = printable.ShellWord(w)
	}
	e := &sdk.Error{Summary: fmt.Sprintf("%s does not have %s", python, h.Name),
		Remedy: fmt.Sprintf("install it (%s -m pip install %s), or name the Python that has it: --python PATH", python,
			strings.Join(words, " "))}
	if err != nil {
		e.Err, e.Detail = err, failure.String()
	}
	return "", e
}

// Call is one run of a harness.
type Call struct {
	Python  string
	Environ []string // of the caller, as os.Environ
	Folder  string   // for its files; made where it is missing
	Policy  Policy   // the harness gets another address and key of it, which end with the run
	Options Options
	Pin     *Pin // nil: the policy does not change
}

// Log is the file with what a harness prints.
func (h *Harness) Log(folder string) string { return filepath.Join(folder, h.Name+".log") }

// Run runs the harness to its end. It is stopped when ctx ends, and when the policy version changes.
func (h *Harness) Run(ctx context.Context, c Call) (err error) {
	if err := os.MkdirAll(c.Folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of the results: %w", err)
	}
	door, err := openDoor(c.Policy.BaseURL, c.Policy.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, door.close()) }()
	c.Policy.BaseURL, c.Policy.Key = door.url, door.key
	argv, environ := h.command(c)
	program, err := proc.Start(ctx, proc.Spec{Name: h.Name, Argv: argv, LogDir: c.Folder, Foreign: true,
		Env: append(slices.Clone(c.Environ), environ...)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop(context.WithoutCancel(ctx), 10*time.Second)) }()
	tick := time.NewTicker(renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if err := c.Pin.check(ctx, false); err != nil {
				return err
			}
		case <-program.Done():
			if err := program.Err(); err != nil {
				return &sdk.Error{Summary: fmt.Sprintf("%s failed: %v", h.Name, err), Detail: program.Tail(20),
					Remedy: "read " + h.Log(c.Folder)}
			}
			return c.Pin.check(ctx, true)
		}
	}
}
