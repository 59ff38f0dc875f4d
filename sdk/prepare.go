package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// Preparer does what a block can do before the blocks that it refers to are ready: a trainer imports PyTorch and loads
// its weights while inference starts. Run follows on the same plugin value, which keeps what was prepared.
//
// In req, values that are not known yet are missing: outputs of other blocks, and what follows from them. Anything else
// may have changed as well when Run is called, so Run compares what it relies on.
//
// Prepare returns soon after started is closed, and Run is called then. It may return earlier, when nothing is left to
// do and nothing would have to be undone. Its context ends when the block is stopped before it was started: Prepare
// then undoes what it did. An error fails the block. The host takes everything but outputs. The phase is preparing,
// whatever Prepare reports, until it reports prepared or returns.
type Preparer[C any] interface {
	Prepare(ctx context.Context, req Request[C], host Host, started <-chan struct{}) error
}

// CanPrepare is the capability of plugins that are a Preparer.
const CanPrepare = "prepare"

// handOver is how long Prepare may take to return once the block has been started.
const handOver = time.Minute

// Prepare begins the block's preparation. A mistake that does not depend on unknown values is refused.
func (s *server) Prepare(_ context.Context, req *pluginpb.PrepareRequest) (*pluginpb.PrepareResponse, error) {
	defer s.lease.Contact()()
	if !slices.Contains(s.def.Capabilities, CanPrepare) {
		return nil, callError("prepare "+req.GetStart().GetAddress(), errUnsupported)
	}
	config, err := s.decode(req.GetStart().GetConfig())
	if err != nil {
		return nil, err
	}
	problems, err := s.def.Validate(config)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if problems = serious(problems); len(problems) > 0 {
		return nil, status.Error(codes.InvalidArgument, describe(problems))
	}
	start := startOf(req.GetStart(), knownPart(s.def.Schema.ApplyDefaults(config)))
	if err := s.begin(start, Preparing); err != nil {
		return nil, err
	}
	return &pluginpb.PrepareResponse{}, nil
}

// stage is what a block that is prepared waits for.
type stage struct {
	starts chan StartRequest // takes one
	begun  bool              // it was started
}

// startPrepared hands the start to a block that was prepared.
func (l *attempt) startPrepared(start StartRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stage == nil || l.stage.begun:
		return status.Errorf(codes.AlreadyExists,
			"this process runs %s already; start a new process for another attempt", l.start.Address)
	case l.phase.Over():
		return status.Errorf(codes.FailedPrecondition, "%s is %s already: %s", l.start.Address, l.phase, l.failure)
	}
	l.stage.begun = true
	l.blanker.Store(newBlanker(append([]string{start.Token, start.ControlToken}, start.Sensitive...)))
	l.version = max(l.version, start.Policy.Version)
	l.setPhaseLocked(Starting, "", "")
	l.stage.starts <- start
	return nil
}

// prepared prepares the block and waits until it is started, with what it returns.
func (l *attempt) prepared(ctx context.Context, h *host) (StartRequest, error) {
	started, returned := make(chan struct{}), make(chan error, 1)
	go func() {
		returned <- l.guarded(func() error { return l.plugin.prepare(ctx, l.start, h, started) })
	}()
	select {
	case err := <-returned:
		if err != nil {
			return StartRequest{}, err
		}
		h.Phase(Prepared, "")
		select {
		case start := <-l.stage.starts:
			return start, nil
		case <-ctx.Done():
			return StartRequest{}, context.Cause(ctx)
		}
	case start := <-l.stage.starts:
		close(started)
		select {
		case err := <-returned:
			return start, err
		case <-time.After(handOver):
			return start, &Error{
				Summary: fmt.Sprintf("the plugin went on preparing for %s after the block was started", handOver),
				Remedy:  "report this to the plugin's author: Prepare returns soon after started is closed",
			}
		}
	case <-ctx.Done():
		return StartRequest{}, errors.Join(<-returned, context.Cause(ctx))
	}
}

// preparing says whether the block has not been started yet.
func (l *attempt) preparing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage != nil && !l.stage.begun
}

// stagePhase is a phase that the plugin reports, as the stage has it: code that both stages share need not know which
// it is in.
func (l *attempt) stagePhase(phase Phase) Phase {
	switch preparing := l.preparing(); {
	case preparing && (phase == Starting || phase == Loading):
		return Preparing
	case !preparing && (phase == Preparing || phase == Prepared):
		return Loading
	}
	return phase
}
