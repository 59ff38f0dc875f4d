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
	"github.com/recipe-rl/recipe/sdk"
)

// detachTimeout is how long a detached engine may take until it answers.
const detachTimeout = time.Minute

// detachPoll is how often it is asked.
const detachPoll = 50 * time.Millisecond

// Handover is the input that the detached engine reads from its standard input. Values of variables and the environment
// are passed this way because every user of the machine can see arguments.
type Handover struct {
	Request  Request    `json:"request"`
	Approved *plan.Plan `json:"approved"`
	Keep     bool       `json:"keep"`
	Attempt  string     `json:"attempt"` // set by Detach; the engine answers with it
	Log      string     `json:"log"`     // set by Detach: the file for the engine's output until it owns the run
}

// EngineLog is the file for the output of a detached engine.
func EngineLog(dir state.Dir) string { return filepath.Join(string(dir), "engine.log") }

// Detached is an engine that Detach has started.
type Detached struct {
	PID  int
	Over bool // it has already ended without an error
}

// Detach starts a separate engine for the run and returns once that engine answers that it owns the run. argv is the
// command that reads a Handover and applies it. The engine survives this process and its terminal; its output goes to
// engine.log in the run directory. When another engine was faster, the error names it.
func (s *Session) Detach(ctx context.Context, argv []string, h Handover) (d Detached, err error) {
	if err := s.Dir.Make(); err != nil {
		return d, err
	}
	if h.Attempt, err = state.NewID(); err != nil {
		return d, err
	}
	// A temporary log first: several may be started at once, and the one that gets the run renames its log to
	// engine.log.
	h.Log = EngineLog(s.Dir) + "." + h.Attempt
	input, err := json.Marshal(h)
	if err != nil {
		return d, fmt.Errorf("pass the run to a detached engine: %w", err)
	}
	log, err := private.OpenFile(h.Log, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return d, fmt.Errorf("open the detached engine's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(input)), log, log
	if err := cmd.Start(); err != nil {
		_ = os.Remove(h.Log)
		return d, fmt.Errorf("start a detached engine: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	d.PID = cmd.Process.Pid
	d.Over, err = s.await(ctx, Identity{PID: d.PID, Attempt: h.Attempt}, ended, log)
	if err != nil {
		_ = os.Remove(h.Log) // if it got the run, this file is engine.log now
	}
	return d, err
}

// await returns when the started engine answers that it owns the run, or has ended before.
func (s *Session) await(ctx context.Context, started Identity, ended <-chan error,
	log *os.File) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	tick := time.NewTicker(detachPoll)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				return true, nil
			}
			return false, s.lost(ctx, started, err, log)
		case <-ctx.Done():
			return false, fmt.Errorf("wait for the detached engine %d to answer (its log is %s): %w", started.PID,
				EngineLog(s.Dir), ctx.Err())
		case <-tick.C:
			who, err := s.answering(ctx)
			switch {
			case errors.Is(err, ErrNoEngine):
			case err != nil && ctx.Err() == nil:
				return false, err
			case who == started && s.Dir.Exists():
				return false, nil // the run is recorded, so status and stop find it
			}
			// Another engine answers: the started one will end and say why.
		}
	}
}

// answering is the engine that answers for the run.
func (s *Session) answering(ctx context.Context) (Identity, error) {
	c, err := Dial(ctx, s.Dir)
	if err != nil {
		return Identity{}, err
	}
	defer c.Close()
	who, err := c.Identity(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrNoEngine, err) // it is ending or starting
	}
	return who, nil
}

// lost explains why a detached engine ended before it answered: another engine owns the run, or its own output.
func (s *Session) lost(ctx context.Context, started Identity, err error, log *os.File) error {
	if owner := state.Holder(s.Dir); owner != nil && owner.PID != started.PID {
		if who, aerr := s.answering(ctx); aerr == nil {
			owner.PID = who.PID
		}
		return &sdk.Error{
			Summary: "another engine was faster",
			Detail:  "This apply changed nothing.",
			Err:     &state.LockedError{Dir: s.Dir, Owner: *owner},
			Remedy:  "recipe status and recipe logs -f show its progress; apply again to send it a change",
		}
	}
	output, _ := io.ReadAll(io.NewSectionReader(log, 0, 64<<10))
	return fmt.Errorf("the detached engine ended before it answered: %w\n%s", err, strings.TrimSpace(string(output)))
}

// ReadHandover reads the input written by Detach.
func ReadHandover(r io.Reader) (Handover, error) {
	var h Handover
	if err := json.NewDecoder(r).Decode(&h); err != nil {
		return h,
			fmt.Errorf(
				"read the run from standard input: %w; this command is started by recipe apply --detach",
				err)
	}
	return h, nil
}
