package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/state"
)

// detachTimeout is how long a detached engine may take until it answers.
const detachTimeout = time.Minute

// Handover is what the detached engine reads from its standard input. Values of variables and the environment go this way
// and not by its arguments, which everyone on the machine can see.
type Handover struct {
	Request  Request    `json:"request"`
	Approved *plan.Plan `json:"approved"`
	Keep     bool       `json:"keep"`
}

// Detach starts an engine of its own for the run and returns once it answers. argv is the command that reads a Handover
// and applies it. The engine outlives this process and its terminal; what it prints goes to engine.log in the run directory.
func (s *Session) Detach(ctx context.Context, argv []string, h Handover) (pid int, err error) {
	if err := s.Dir.Make(); err != nil {
		return 0, err
	}
	input, err := json.Marshal(h)
	if err != nil {
		return 0, fmt.Errorf("handing the run to a detached engine: %w", err)
	}
	path := filepath.Join(string(s.Dir), "engine.log")
	log, err := private.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return 0, fmt.Errorf("opening the detached engine's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // this very program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(input)), log, log
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting a detached engine: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd.Process.Pid, await(ctx, s.Dir, ended, path)
}

// await returns when the engine of dir answers, or has ended before it did.
func await(ctx context.Context, dir state.Dir, ended <-chan error, log string) error {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				return nil // it is done already
			}
			said, _ := os.ReadFile(log)
			return fmt.Errorf("the detached engine ended before it answered: %w\n%s", err, strings.TrimSpace(string(said)))
		case <-ctx.Done():
			return fmt.Errorf("waiting for the detached engine to answer (its log is %s): %w", log, ctx.Err())
		case <-tick.C:
			c, err := Dial(ctx, dir)
			if err == nil {
				c.Close()
				if dir.Exists() {
					return nil // it has recorded the run, so status and stop find it
				}
				continue
			}
			if !errors.Is(err, ErrNoEngine) {
				return err
			}
		}
	}
}

// ReadHandover reads what Detach wrote.
func ReadHandover(r io.Reader) (Handover, error) {
	var h Handover
	if err := json.NewDecoder(r).Decode(&h); err != nil {
		return h, fmt.Errorf("reading the handed-over run from standard input: %w; this command is started by recipe apply --detach", err)
	}
	return h, nil
}
