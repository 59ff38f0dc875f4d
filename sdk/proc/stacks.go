package proc

import (
	"bytes"
	"context"
	_ "embed" // the module that Python programs import
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed python/sitecustomize.py
var sitecustomize []byte

const (
	stacksName   = "RECIPE_STACKS"        // where a Python process writes its stacks
	stacksSignal = "RECIPE_STACKS_SIGNAL" // when it gets this signal
	pythonPath   = "PYTHONPATH"

	mostPrograms   = 32              // of one dump
	mostStackBytes = 64 << 10        // of one process
	stackPatience  = 2 * time.Second // for the first line of one process
	stackSettle    = 50 * time.Millisecond
)

// Stack is where the threads of one process are.
type Stack struct {
	PID     int
	Program string // its command line, shortened
	Text    string
	Err     error // why there is no Text
}

// listenForStacks prepares a program's environment so that the Python processes in it can be asked for their stacks. A
// failure costs the stacks and nothing else.
func listenForStacks(env []string, dir, name string) []string {
	modules, file := filepath.Join(dir, name+".python"), stacksFile(filepath.Join(dir, name+".log"))
	// Made anew, with nothing that a run directory of someone else, or a block on another machine, has put there: Python
	// programs import from it.
	if err := errors.Join(os.RemoveAll(modules), os.MkdirAll(modules, 0o700)); err != nil {
		return env
	}
	if err := os.WriteFile(filepath.Join(modules, "sitecustomize.py"), sitecustomize, 0o600); err != nil {
		return env
	}
	if err := emptied(file); err != nil {
		return env
	}
	for _, path := range []*string{&modules, &file} { // the program may start somewhere else
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return env
		}
		*path = absolute
	}
	out := make([]string, 0, len(env)+3)
	outer := outerModules(env)
	for _, entry := range env {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case pythonPath:
			for _, path := range filepath.SplitList(value) {
				if path != outer {
					modules += string(os.PathListSeparator) + path
				}
			}
		case stacksName, stacksSignal:
		default:
			out = append(out, entry)
		}
	}
	return append(out, pythonPath+"="+modules, stacksName+"="+file, stacksSignal+"="+strconv.Itoa(int(dumpSignal)))
}

// outerModules is the folder on PYTHONPATH of the program that starts this one, if there is one: two that look for the
// next sitecustomize would find each other.
func outerModules(env []string) string {
	for _, entry := range env {
		if file, ok := strings.CutPrefix(entry, stacksName+"="); ok {
			return strings.TrimSuffix(file, ".stacks") + ".python"
		}
	}
	return ""
}

// stacksFile is where the Python processes of the program with this log write their stacks.
func stacksFile(log string) string { return strings.TrimSuffix(log, ".log") + ".stacks" }

// Stacks asks every process of the program where its threads are. Only those that have announced a handler are asked:
// the signal would end any other.
func (h Handle) Stacks(ctx context.Context) []Stack {
	family := h.family()
	slices.SortFunc(family, func(a, b process) int { return a.pid - b.pid })
	var out []Stack
	for _, p := range family {
		if len(out) == mostPrograms || ctx.Err() != nil {
			break
		}
		s := Stack{PID: p.pid, Program: commandLine(p.pid)}
		if catches(p.pid) {
			s.Text, s.Err = h.stackOf(ctx, p)
		} else {
			s.Err = errors.New("it is not a Python program, or was started without the module that answers")
		}
		out = append(out, s)
	}
	return out
}

// stackOf asks one process. They share a file, so they are asked one after the other.
func (h Handle) stackOf(ctx context.Context, p process) (string, error) {
	path := stacksFile(h.Log)
	if err := emptied(path); err != nil {
		return "", fmt.Errorf("prepare the file of stacks: %w", err)
	}
	if err := signalSame(p, dumpSignal); err != nil {
		return "", err
	}
	late := time.NewTimer(stackPatience)
	defer late.Stop()
	tick := time.NewTicker(stackSettle)
	defer tick.Stop()
	var last []byte
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-late.C:
			if len(last) > 0 {
				return string(last), nil
			}
			return "", errors.New("it did not answer: it is in a system call that nothing interrupts, or stopped")
		case <-tick.C:
		}
		text, err := readStacks(path)
		if err != nil {
			return "", err
		}
		if len(text) > 0 && bytes.Equal(text, last) {
			return string(text), nil
		}
		last = text
	}
}

// emptied makes the file of stacks, or empties it.
func emptied(path string) error {
	f, err := openRegular(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return err
	}
	return f.Close()
}

func readStacks(path string) ([]byte, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("read the stacks: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, mostStackBytes))
	if err != nil {
		return nil, fmt.Errorf("read the stacks: %w", err)
	}
	return text, nil
}

// shortCommand is a program with the module or file that it runs.
func shortCommand(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	words := []string{filepath.Base(argv[0])}
	for i := 1; i < len(argv) && len(words) < 3; i++ {
		switch {
		case argv[i] == "-m" && i+1 < len(argv):
			return strings.Join(append(words, "-m", argv[i+1]), " ")
		case argv[i] == "-c":
			return strings.Join(append(words, "-c …"), " ")
		case !strings.HasPrefix(argv[i], "-"):
			return strings.Join(append(words, filepath.Base(argv[i])), " ")
		}
	}
	return strings.Join(words, " ")
}
