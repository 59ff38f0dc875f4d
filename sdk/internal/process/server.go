// Package process serves the protocol in a plugin's process: the calls of an engine, TLS, the lease, and the end of the
// process.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/lease"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Factory is the implementation of a definition that Define of package define has made.
type Factory interface {
	sdk.Implementation
	// New makes a fresh plugin value. Nothing has been started.
	New() attempt.Plugin
}

// Servicer is an implementation that serves a service of its kind beside the common one.
type Servicer interface {
	// Service registers it. Each call tells contact that an engine is there, and the function that it returns that the
	// call is over.
	Service(r grpc.ServiceRegistrar, contact func() (over func()))
}

// Server answers the calls of the protocol for one definition. It holds at most one block.
type Server struct {
	pluginpb.UnimplementedPluginServer
	def   *sdk.Definition
	lease *lease.Lease

	mu      sync.Mutex
	attempt *attempt.Attempt
	started chan struct{} // closed by the first Prepare or Start
	stopped bool          // Stop came before Start
}

// NewServer makes the server of a definition whose implementation is a Factory. Close ends the block, if it was
// started.
func NewServer(def *sdk.Definition) *Server {
	s := &Server{def: def, started: make(chan struct{})}
	orphaned := s.orphaned(os.Getenv(protocol.EngineKey), os.Getenv(protocol.AgentKey))
	s.lease = lease.New(lease.First, lease.Tick, orphaned, func() {
		fmt.Fprintf(os.Stderr, "no engine has called for the time of the lease, or this process has lost its parent; the "+
			"block ends itself\n")
		ctx, cancel := context.WithTimeout(context.Background(), s.grace()+endMargin)
		defer cancel()
		if l := s.current(); l != nil {
			if err := l.Stop(ctx, 0, false); err != nil {
				fmt.Fprintf(os.Stderr, "end the block: %v\n", err)
			}
		}
	})
	return s
}

// orphaned reports that this process has lost the parent that it cannot do without. The engine, if that ended without
// starting a block in it: it was killed before it could record the process, so a later engine does not know of it, or
// ends it. The agent of a job, always: the job is over, but not every cluster ends what its program has started. Nil
// where neither is the parent.
func (s *Server) orphaned(engine, agent string) func() bool {
	pid, err := strconv.Atoi(engine)
	if err != nil {
		return nil
	}
	return func() bool { return os.Getppid() != pid && (agent == engine || s.current() == nil) }
}

// Register registers the services of the plugin.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pluginpb.RegisterPluginServer(r, s)
	if of, ok := s.def.Implementation.(Servicer); ok {
		of.Service(r, s.lease.Contact)
	}
}

// grace is how long the block may take to end where nobody says it.
func (s *Server) grace() time.Duration {
	if a := s.current(); a != nil {
		return a.Grace()
	}
	return attempt.DefaultGrace
}

// endMargin is what a process may take beyond its block's grace, to end what is left of its programs.
const endMargin = 15 * time.Second

// Close ends the block within the grace period, and the lease.
func (s *Server) Close(ctx context.Context, grace time.Duration) error {
	s.lease.End()
	l := s.current()
	if l == nil {
		return nil
	}
	return l.Stop(ctx, grace, false)
}

func (s *Server) current() *attempt.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempt
}

// block returns the block, or the status of a call that came before Start.
func (s *Server) block() (*attempt.Attempt, error) {
	if l := s.current(); l != nil && !l.Preparing() {
		return l, nil
	}
	return nil, status.Error(codes.FailedPrecondition,
		"the block has not been started in this process; call Start first")
}

// running returns the block, or the status of a call that it cannot answer because it has ended.
func (s *Server) running() (*attempt.Attempt, error) {
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	if err := l.Running(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return l, nil
}

// Describe describes what the plugin is.
func (s *Server) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	defer s.lease.Contact()()
	schema, err := json.Marshal(s.def.Schema)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the block's schema: %v", err)
	}
	outputs, err := json.Marshal(s.def.Outputs)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the schema of the outputs: %v", err)
	}
	var packages []byte
	if of := s.def.Packages; of != nil {
		if packages, err = json.Marshal(sdk.PackagesByMachine{CPU: of(false), GPU: of(true)}); err != nil {
			return nil, status.Errorf(codes.Internal, "encode the Python packages: %v", err)
		}
	}
	return &pluginpb.DescribeResponse{
		Kind: string(s.def.Kind), Name: s.def.Name, Version: s.def.Version, Summary: s.def.Summary,
		ProtocolVersions: []uint32{protocol.Version}, Schema: schema, Outputs: outputs,
		Capabilities:         s.def.Capabilities,
		EnvironmentVariables: s.def.Environment,
		Packages:             packages,
	}, nil
}

func (s *Server) decode(config []byte) (cty.Value, error) {
	value, err := spec.Unmarshal(config, s.def.Schema)
	if err != nil {
		return cty.NilVal, status.Errorf(codes.InvalidArgument, "the block's configuration: %v", err)
	}
	return value, nil
}

// Validate checks a block's values beyond what its schema says.
func (s *Server) Validate(_ context.Context, req *pluginpb.ValidateRequest) (*pluginpb.ValidateResponse, error) {
	defer s.lease.Contact()()
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	problems, err := s.def.Validate(config)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	diagnostics, err := wire.EncodeProblems(problems)
	return &pluginpb.ValidateResponse{Diagnostics: diagnostics}, err
}

// Plan describes what the block will need.
func (s *Server) Plan(_ context.Context, req *pluginpb.PlanRequest) (*pluginpb.PlanResponse, error) {
	defer s.lease.Contact()()
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	estimate, problems, err := s.def.Plan(config, wire.DecodePlacement(req.GetPlacement()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	diagnostics, err := wire.EncodeProblems(problems)
	return &pluginpb.PlanResponse{Diagnostics: diagnostics, Estimate: wire.EncodeEstimate(estimate)}, err
}

// Prepare begins the block's preparation, or tells one under way that nobody decides by the free memory of its
// accelerators any more. A mistake that does not depend on unknown values is refused.
func (s *Server) Prepare(_ context.Context, req *pluginpb.PrepareRequest) (*pluginpb.PrepareResponse, error) {
	defer s.lease.Contact()()
	if !slices.Contains(s.def.Capabilities, protocol.CanPrepare) {
		return nil, callError("prepare "+req.GetStart().GetAddress(), attempt.ErrUnsupported)
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
		return nil, refuse(problems)
	}
	start := wire.DecodeStart(req.GetStart(), spec.KnownPart(s.def.Schema.ApplyDefaults(config)))
	if a := s.current(); a != nil && !start.SharesDevices && a.Settle() {
		return &pluginpb.PrepareResponse{}, nil
	}
	if err := s.begin(start, sdk.Preparing); err != nil {
		return nil, err
	}
	return &pluginpb.PrepareResponse{}, nil
}

// Start begins the block's attempt, or goes on with one that was prepared.
func (s *Server) Start(_ context.Context, req *pluginpb.StartRequest) (*pluginpb.StartResponse, error) {
	defer s.lease.Contact()()
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	config = s.def.Schema.ApplyDefaults(config)
	if !config.IsWhollyKnown() {
		return nil, status.Error(codes.InvalidArgument,
			"the block's configuration holds unknown values; Start needs all of them")
	}
	if problems := s.problems(config); len(problems) > 0 {
		return nil, refuse(problems)
	}
	start := wire.DecodeStart(req, config)
	if l := s.current(); l != nil {
		if err = l.StartPrepared(start); errors.Is(err, attempt.ErrStarted) {
			err = status.Error(codes.AlreadyExists, err.Error())
		} else if err != nil {
			err = status.Error(codes.FailedPrecondition, err.Error())
		}
	} else {
		err = s.begin(start, sdk.Starting)
	}
	if err != nil {
		return nil, err
	}
	return &pluginpb.StartResponse{}, nil
}

// begin makes the one attempt of this process.
func (s *Server) begin(start wire.Start, first sdk.Phase) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return status.Error(codes.FailedPrecondition,
			"the block was stopped before it was started; start a new process for it")
	case s.attempt != nil:
		return status.Errorf(codes.AlreadyExists,
			"this process runs %s already; start a new process for another attempt", s.attempt.Start().Address)
	}
	l, err := attempt.Begin(s.def, s.def.Implementation.(Factory).New(), start, first)
	if err != nil {
		return status.Errorf(codes.Internal, "start %s: %v", start.Address, err)
	}
	s.attempt = l
	close(s.started)
	return nil
}

// problems checks a configuration against the schema and with the plugin's own Validate; warnings do not count.
func (s *Server) problems(config cty.Value) []spec.Problem {
	all := s.def.Schema.Check(config)
	if len(all) == 0 {
		own, err := s.def.Validate(config)
		if err != nil {
			own = append(own, spec.Problem{Summary: err.Error()})
		}
		all = own
	}
	return serious(all)
}

// serious leaves out warnings.
func serious(all []spec.Problem) (left []spec.Problem) {
	for _, p := range all {
		if !p.Warning {
			left = append(left, p)
		}
	}
	return left
}

// Update hands new values of attributes that change live to the plugin.
func (s *Server) Update(ctx context.Context, req *pluginpb.UpdateRequest) (*pluginpb.UpdateResponse, error) {
	defer s.lease.Contact()()
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	config = s.def.Schema.ApplyDefaults(config)
	if problems := s.problems(config); len(problems) > 0 {
		return nil, refuse(problems)
	}
	if err := l.Running(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	err = attempt.Guard(l.Start().Address, func() error { return l.Plugin().Update(ctx, config) })
	if err != nil {
		return nil, callError("update "+l.Start().Address, err)
	}
	return &pluginpb.UpdateResponse{}, nil
}

// Stop drains and ends the block.
func (s *Server) Stop(ctx context.Context, req *pluginpb.StopRequest) (*pluginpb.StopResponse, error) {
	defer s.lease.Contact()()
	s.mu.Lock()
	l := s.attempt
	if l == nil {
		s.stopped = true
	}
	s.mu.Unlock()
	if l == nil {
		return &pluginpb.StopResponse{}, nil
	}
	// The stop continues when the caller has gone: otherwise a half-stopped block would be left behind.
	err := l.Stop(context.WithoutCancel(ctx), time.Duration(req.GetGraceMs())*time.Millisecond, req.GetKill())
	if err != nil {
		return nil, status.Error(codes.DeadlineExceeded, err.Error())
	}
	return &pluginpb.StopResponse{}, nil
}

// Attach sets the length of the lease.
func (s *Server) Attach(_ context.Context, req *pluginpb.AttachRequest) (*pluginpb.AttachResponse, error) {
	if req.GetLeaseMs() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "lease_ms is %d; want 0 (detached) or more", req.GetLeaseMs())
	}
	s.lease.Set(time.Duration(req.GetLeaseMs()) * time.Millisecond)
	return &pluginpb.AttachResponse{}, nil
}

// Evaluate runs an environment's evaluation once.
func (s *Server) Evaluate(ctx context.Context, req *pluginpb.EvaluateRequest) (*pluginpb.EvaluateResponse, error) {
	defer s.lease.Contact()()
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	var out pluginpb.EvaluateResponse
	err = attempt.Guard(l.Start().Address, func() (err error) {
		var scores sdk.TaskScores
		if req.GetSamples() > 0 {
			scores, err = l.Plugin().EvaluateTasks(ctx, sdk.EvaluateTasks{First: int(req.GetFirst()),
				Limit: int(req.GetLimit()), Samples: int(req.GetSamples()), Temperature: req.GetTemperature(), Seed: req.Seed})
		} else {
			out.Metrics, scores, err = l.Plugin().Evaluate(ctx, int(req.GetLimit()))
		}
		wire.EncodeTaskScores(&out, scores)
		return err
	})
	if err != nil {
		return nil, callError("evaluate "+l.Start().Address, err)
	}
	return &out, nil
}

// Rescore scores a recorded group again.
func (s *Server) Rescore(ctx context.Context, req *pluginpb.RescoreRequest) (*pluginpb.RescoreResponse, error) {
	defer s.lease.Contact()()
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	var scored sdk.RescoredGroup
	err = attempt.Guard(l.Start().Address, func() (err error) {
		scored, err = l.Plugin().Rescore(ctx, wire.DecodeRecorded(req))
		return err
	})
	if err != nil {
		return nil, callError("rescore by "+l.Start().Address, err)
	}
	return wire.EncodeRescored(scored), nil
}

// Checkpoint makes a trainer write a checkpoint now.
func (s *Server) Checkpoint(ctx context.Context, _ *pluginpb.CheckpointRequest) (*pluginpb.CheckpointResponse, error) {
	defer s.lease.Contact()()
	l, err := s.running()
	if err != nil {
		return nil, err
	}
	var c sdk.CheckpointInfo
	err = attempt.Guard(l.Start().Address, func() (err error) {
		c, err = l.Plugin().Checkpoint(ctx)
		return err
	})
	if err != nil {
		return nil, callError("checkpoint "+l.Start().Address, err)
	}
	return &pluginpb.CheckpointResponse{Path: c.Path, Step: c.Step, PolicyVersion: c.Version}, nil
}

// Pause makes the block begin no new work, or go on.
func (s *Server) Pause(ctx context.Context, req *pluginpb.PauseRequest) (*pluginpb.PauseResponse, error) {
	defer s.lease.Contact()()
	l, err := s.running()
	if err != nil {
		return nil, err
	}
	if err := l.Pause(ctx, req.GetPaused()); err != nil {
		return nil, callError("pause "+l.Start().Address, err)
	}
	return &pluginpb.PauseResponse{}, nil
}

func callError(what string, err error) error {
	if errors.Is(err, attempt.ErrUnsupported) {
		return status.Errorf(codes.Unimplemented, "%s: %v", what, err)
	}
	return status.Errorf(codes.Unknown, "%s: %s", what, sdk.Message(err))
}

// describe puts problems into one text.
// refuse is the answer to values that a plugin refuses: in words, and for engines that show where they are, as problems
// among the details of the status.
func refuse(problems []spec.Problem) error {
	answer := status.New(codes.InvalidArgument, describe(problems))
	if list, err := wire.EncodeProblems(problems); err == nil {
		if detailed, err := answer.WithDetails(&pluginpb.ValidateResponse{Diagnostics: list}); err == nil {
			answer = detailed
		}
	}
	return answer.Err()
}

func describe(problems []spec.Problem) string {
	var b strings.Builder
	for i, p := range problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if len(p.Path) > 0 {
			b.WriteString(spec.PathString(p.Path) + ": ")
		}
		b.WriteString(p.Summary)
		if p.Detail != "" {
			b.WriteString(": " + p.Detail)
		}
	}
	return b.String()
}
