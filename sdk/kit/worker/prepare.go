package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// Values of a program's setting `prepare`: how far it prepares before its block is started.
const (
	onHost   = "host"   // imports, and files read: nothing that touches a GPU
	onDevice = "device" // everything up to the first batch
	onBeside = "beside" // the same in what inference on the GPU has left of its memory: what may follow onHost
)

// stage is a program that was started before its block, until Run takes it over.
type stage[C any] struct {
	process
	watch *watch[C]
	asked *message // the program has finished preparing and asks to be started
}

// process is a running program and the parameters of its start.
type process struct {
	program  *proc.Program
	others   []*proc.Program // on further machines
	link     *link
	argv     []string
	env      []string
	settings map[string]any
}

// end stops the program and closes the connection.
func (p process) end(ctx context.Context, host sdk.Host) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	for _, program := range append(slices.Clip(p.others), p.program) {
		if err := program.Stop(stop, time.Second); err != nil {
			host.Log("error", err.Error())
		}
	}
	p.link.close()
}

// Prepare starts the worker before its block: it imports PyTorch and loads the model while inference starts. On a
// GPU of its own it does so on the GPU. Where it shares one it stays in host memory at first: an inference server
// measures the free memory while it starts, and takes what another process allocates meanwhile for its own use. Once it
// has, the worker goes on on the GPU, if it can.
func (t *Trainer[C]) Prepare(ctx context.Context, req sdk.Request[C], host sdk.Host, started <-chan struct{}) error {
	t.req, t.host = req, unstarted{host}
	how := onDevice
	if req.SharesDevices {
		if how = onHost; t.gpus() > 1 || len(nodes.Addresses()) > 1 {
			return nil // ranks connect on their GPUs
		}
	}
	var err error
	if t.program, err = t.describe(req); err != nil {
		return nil //nolint:nilerror // an unknown value may be the reason: Run reports the error
	}
	p, err := t.launch(ctx, map[string]any{"prepare": how, "data": map[string]any{"url": ""}})
	if err != nil {
		return err
	}
	s := &stage[C]{process: p, watch: newWatch(t)}
	if err := s.follow(ctx, started, req.Settled); err != nil || ctx.Err() != nil {
		p.end(ctx, host)
		return err
	}
	t.stage = s
	return nil
}

// follow handles the worker's messages until the block is started or stopped. settled: see sdk.Request.Settled.
func (s *stage[C]) follow(ctx context.Context, started, settled <-chan struct{}) error {
	late := time.NewTimer(connectTimeout)
	defer late.Stop()
	ended, free := s.link.ended(s.program), false
	for {
		select {
		case m := <-s.link.inbox:
			switch m.ask {
			case "":
				s.watch.event(m.event)
			case "prepared":
				s.asked = &m
				s.watch.trainer.host.Phase(sdk.Prepared, "")
				s.goOn(free)
			default:
				m.reply(nil, errUnstarted)
			}
		case <-settled:
			settled, free = nil, true
			s.goOn(free)
		case <-ended:
			s.watch.rest(s.link)
			return s.watch.end(ctx, s.program)
		case <-late.C:
			if !s.link.connected() {
				return unconnected(s.program)
			}
		case <-started:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// goOn has a worker that has prepared in host memory go on on the device, if that is free to use and the worker can.
func (s *stage[C]) goOn(free bool) {
	if !free || s.asked == nil || !s.asked.beside {
		return
	}
	s.watch.trainer.host.Phase(sdk.Preparing, "on the device, beside inference")
	s.asked.reply(map[string]any{"settings": map[string]any{}, "prepare": onBeside}, nil)
	s.asked = nil
}

// takeOver returns the prepared worker after sending it the remaining settings. Nil: there is none, or it was prepared
// with settings that have changed and has been stopped.
func (t *Trainer[C]) takeOver(ctx context.Context) (*stage[C], error) {
	s := t.stage
	if t.stage = nil; s == nil {
		return nil, nil
	}
	changed, err := t.changedSince(s.process)
	if err == nil && changed == "" {
		t.late, err = t.known()
	}
	if err != nil || changed != "" {
		s.process.end(ctx, t.host)
		if changed != "" {
			t.host.Log("info", "the worker is started anew: "+changed+" changed since it was prepared")
		}
		return nil, err
	}
	t.sent = t.program.Settings
	if s.asked != nil {
		s.asked.reply(map[string]any{"settings": t.late}, nil)
	}
	return s, nil
}

// changedSince names a parameter of the start that has changed since the worker was prepared; empty: none.
func (t *Trainer[C]) changedSince(p process) (string, error) {
	python, err := t.interpreter()
	if err != nil {
		return "", err
	}
	env := t.environ(python)
	slices.Sort(env)
	switch settings := t.settings(p.link); {
	case !slices.Equal(p.argv, t.argv(python)):
		return "its command", nil
	case !slices.Equal(p.env, env):
		return "its environment", nil
	case !reflect.DeepEqual(p.settings, settings):
		return "a setting", nil
	}
	return "", nil
}

// unstarted is the host of a trainer that is prepared.
type unstarted struct{ sdk.Host }

var errUnstarted = errors.New("the block has not been started yet")

func (unstarted) Sync(context.Context, int64, trainer.Snapshot) (int64, error) {
	return 0, errUnstarted
}
func (unstarted) Version() int64                    { return 0 }
func (unstarted) VersionOf(int64) int64             { return 0 }
func (unstarted) Turn(context.Context, int64) error { return errUnstarted }
func (unstarted) Shared() bool                      { return false }

func unconnected(program *proc.Program) error {
	return &sdk.Error{Summary: fmt.Sprintf("the worker did not connect within %s", connectTimeout),
		Detail: program.Tail(10),
		Remedy: "importing PyTorch hangs or the machine is overloaded: try `python -c \"import torch, transformers\"` " +
			"with the block's interpreter"}
}
