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

// Handover is what the detached engine reads from its standard input. Values of variables and the environment go this
// way and not by its arguments, which everyone on the machine can see.
type Handover struct {
	Request  Request    `json:"request"`
	Approved *plan.Plan `json:"approved"`
	Keep     bool       `json:"keep"`
	Attempt  string     `json:"attempt"` // Detach sets it: the engine answers with it, and is known by it
	Log      string     `json:"log"`     // likewise: what the engine's output goes to until the run is its own
}

// EngineLog is where a detached engine writes what it would say at a terminal.
func EngineLog(dir state.Dir) string { return filepath.Join(string(dir), "engine.log") }

// Detached is an engine that Detach has started.
type Detached struct {
	PID  int
	Over bool // it has ended without an error already: there was little to do
}

// Detach starts an engine of its own for the run and returns once that engine answers that the run is its. argv is the
// command that reads a Handover and applies it. The engine outlives this process and its terminal; what it prints goes
// to engine.log in the run directory. When another engine was faster, the error says which.
func (s *Session) Detach(ctx context.Context, argv []string, h Handover) (d Detached, err error) {
	if err := s.Dir.Make(); err != nil {
		return d, err
	}
	if h.Attempt, err = state.NewID(); err != nil {
		return d, err
	}
	// A log of its own at first: several may be started at once, and the one that gets the run keeps engine.log for
	// itself.
	h.Log = EngineLog(s.Dir) + "." + h.Attempt
	input, err := json.Marshal(h)
	if err != nil {
		return d, fmt.Errorf("handing the run to a detached engine: %w", err)
	}
	log, err := private.OpenFile(h.Log, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return d, fmt.Errorf("opening the detached engine's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(input)), log, log
	if err := cmd.Start(); err != nil {
		_ = os.Remove(h.Log)
		return d, fmt.Errorf("starting a detached engine: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	d.PID = cmd.Process.Pid
	d.Over, err = s.await(ctx, Identity{PID: d.PID, Attempt: h.Attempt}, ended, log)
	if err != nil {
		_ = os.Remove(h.Log) // when it got the run, this is engine.log by now
	}
	return d, err
}

// await returns when the engine that was started answers that it works on the run, or has ended before it did.
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
			return false, fmt.Errorf("waiting for the detached engine %d to answer (its log is %s): %w", started.PID,
				EngineLog(s.Dir), ctx.Err())
		case <-tick.C:
			who, err := s.answering(ctx)
			switch {
			case errors.Is(err, ErrNoEngine):
			case err != nil && ctx.Err() == nil:
				return false, err
			case who == started && s.Dir.Exists():
				return false, nil // it has recorded the run, so status and stop find it
			}
			// Another engine answers: the one that was started ends soon and says why.
		}
	}
}

// answering is the engine that answers for the run now.
func (s *Session) answering(ctx context.Context) (Identity, error) {
	c, err := Dial(ctx, s.Dir)
	if err != nil {
		return Identity{}, err
	}
	defer c.Close()
	who, err := c.Identity(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrNoEngine, err) // it ends, or has just begun
	}
	return who, nil
}

// lost says why a detached engine ended before it answered: because another one works on the run, or in its own words.
func (s *Session) lost(ctx context.Context, started Identity, err error, log *os.File) error {
	if owner := state.Holder(s.Dir); owner != nil && owner.PID != started.PID {
		if who, aerr := s.answering(ctx); aerr == nil {
			owner.PID = who.PID
		}
		return &sdk.Error{
			Summary: fmt.Sprintf("another engine was faster: process %d on %s works on this run (%s)", owner.PID,
				owner.Host, owner.Command),
			Detail: "Nothing of this apply was done.",
			Remedy: "recipe status and recipe logs -f show what it does; apply again to hand a change to it",
		}
	}
	said, _ := io.ReadAll(io.NewSectionReader(log, 0, 64<<10))
	return fmt.Errorf("the detached engine ended before it answered: %w\n%s", err, strings.TrimSpace(string(said)))
}

// ReadHandover reads what Detach wrote.
func ReadHandover(r io.Reader) (Handover, error) {
	var h Handover
	if err := json.NewDecoder(r).Decode(&h); err != nil {
		return h,
			fmt.Errorf(
				"reading the handed-over run from standard input: %w; this command is started by recipe apply --detach",
				err)
	}
	return h, nil
}
