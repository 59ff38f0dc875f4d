package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk/internal/lease"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// server answers the calls of the protocol for one definition. It holds at most one block.
type server struct {
	pluginpb.UnimplementedPluginServer
	def   *Definition
	lease *lease.Lease

	mu      sync.Mutex
	attempt *attempt
	started chan struct{} // closed by the first Prepare or Start
	stopped bool          // Stop came before Start
}

// NewServer returns the plugin side of the protocol for a definition, to be registered on a gRPC server. Serve uses it,
// and so does plugintest; a plugin's author needs neither. Close ends the block, if it was started.
func NewServer(def *Definition) *Server {
	return &Server{server: newServer(def)}
}

// Server is the plugin side of the protocol.
type Server struct{ server *server }

// Service is what is registered on the gRPC server.
func (s *Server) Service() pluginpb.PluginServer { return s.server }

// Close ends the block within the grace period and ends the lease.
func (s *Server) Close(ctx context.Context, grace time.Duration) error {
	return s.server.shutdown(ctx, grace)
}

func newServer(def *Definition) *server {
	s := &server{def: def, started: make(chan struct{})}
	s.lease = lease.New(lease.First, lease.Tick, s.orphaned(os.Getenv(protocol.EngineKey)), func() {
		fmt.Fprintf(os.Stderr, "the lease has run out: no engine has called; the block ends itself\n")
		ctx, cancel := context.WithTimeout(context.Background(), defaultGrace+15*time.Second)
		defer cancel()
		if l := s.current(); l != nil {
			if err := l.stop(ctx, 0, false); err != nil {
				fmt.Fprintf(os.Stderr, "end the block: %v\n", err)
			}
		}
	})
	return s
}

// orphaned says that the engine which started this process has ended without starting a block in it: it was killed
// before it could record the process. A later engine does not know of the process, or ends it. Nil where the engine is
// not the parent.
func (s *server) orphaned(engine string) func() bool {
	pid, err := strconv.Atoi(engine)
	if err != nil {
		return nil
	}
	return func() bool { return os.Getppid() != pid && s.current() == nil }
}

func (s *server) shutdown(ctx context.Context, grace time.Duration) error {
	s.lease.End()
	l := s.current()
	if l == nil {
		return nil
	}
	return l.stop(ctx, grace, false)
}

func (s *server) current() *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempt
}

// block returns the block, or the status of a call that came before Start.
func (s *server) block() (*attempt, error) {
	if l := s.current(); l != nil && !l.preparing() {
		return l, nil
	}
	return nil, status.Error(codes.FailedPrecondition,
		"the block has not been started in this process; call Start first")
}

func (s *server) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	defer s.lease.Contact()()
	schema, err := json.Marshal(s.def.Schema)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the block's schema: %v", err)
	}
	outputs, err := json.Marshal(s.def.Outputs)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the schema of the outputs: %v", err)
	}
	return &pluginpb.DescribeResponse{
		Kind: string(s.def.Kind), Name: s.def.Name, Version: s.def.Version, Summary: s.def.Summary,
		ProtocolVersions: []uint32{protocol.Version}, Schema: schema, Outputs: outputs,
		Capabilities:         s.def.Capabilities,
		EnvironmentVariables: s.def.Environment,
	}, nil
}

func (s *server) decode(config []byte) (cty.Value, error) {
	value, err := spec.Unmarshal(config, s.def.Schema)
	if err != nil {
		return cty.NilVal, status.Errorf(codes.InvalidArgument, "the block's configuration: %v", err)
	}
	return value, nil
}

func (s *server) Validate(_ context.Context, req *pluginpb.ValidateRequest) (*pluginpb.ValidateResponse, error) {
	defer s.lease.Contact()()
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	problems, err := s.def.Validate(config)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	diagnostics, err := diagnosticsOf(problems)
	return &pluginpb.ValidateResponse{Diagnostics: diagnostics}, err
}

func (s *server) Plan(_ context.Context, req *pluginpb.PlanRequest) (*pluginpb.PlanResponse, error) {
	defer s.lease.Contact()()
	config, err := s.decode(req.GetConfig())
	if err != nil {
		return nil, err
	}
	estimate, problems, err := s.def.Plan(config, placementOf(req.GetPlacement()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	diagnostics, err := diagnosticsOf(problems)
	return &pluginpb.PlanResponse{Diagnostics: diagnostics, Estimate: estimateTo(estimate)}, err
}

func (s *server) Start(_ context.Context, req *pluginpb.StartRequest) (*pluginpb.StartResponse, error) {
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
		return nil, status.Error(codes.InvalidArgument, describe(problems))
	}
	start := startOf(req, config)
	if l := s.current(); l != nil {
		err = l.startPrepared(start)
	} else {
		err = s.begin(start, Starting)
	}
	if err != nil {
		return nil, err
	}
	return &pluginpb.StartResponse{}, nil
}

// begin makes the one attempt of this process.
func (s *server) begin(start StartRequest, first Phase) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return status.Error(codes.FailedPrecondition,
			"the block was stopped before it was started; start a new process for it")
	case s.attempt != nil:
		return status.Errorf(codes.AlreadyExists,
			"this process runs %s already; start a new process for another attempt", s.attempt.start.Address)
	}
	l, err := begin(s.def, start, first)
	if err != nil {
		return status.Errorf(codes.Internal, "start %s: %v", start.Address, err)
	}
	s.attempt = l
	close(s.started)
	return nil
}

// problems checks a configuration against the schema and with the plugin's own Validate; warnings do not count.
func (s *server) problems(config cty.Value) []spec.Problem {
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

func (s *server) Update(ctx context.Context, req *pluginpb.UpdateRequest) (*pluginpb.UpdateResponse, error) {
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
		return nil, status.Error(codes.InvalidArgument, describe(problems))
	}
	if err := l.running(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	err = guard(l.start.Address, func() error { return l.plugin.update(ctx, config) })
	if err != nil {
		return nil, callError("update "+l.start.Address, err)
	}
	return &pluginpb.UpdateResponse{}, nil
}

func (s *server) Stop(ctx context.Context, req *pluginpb.StopRequest) (*pluginpb.StopResponse, error) {
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
	err := l.stop(context.WithoutCancel(ctx), time.Duration(req.GetGraceMs())*time.Millisecond, req.GetKill())
	if err != nil {
		return nil, status.Error(codes.DeadlineExceeded, err.Error())
	}
	return &pluginpb.StopResponse{}, nil
}

func (s *server) Attach(_ context.Context, req *pluginpb.AttachRequest) (*pluginpb.AttachResponse, error) {
	if req.GetLeaseMs() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "lease_ms is %d; want 0 (detached) or more", req.GetLeaseMs())
	}
	s.lease.Set(time.Duration(req.GetLeaseMs()) * time.Millisecond)
	return &pluginpb.AttachResponse{}, nil
}

func (s *server) Evaluate(ctx context.Context, req *pluginpb.EvaluateRequest) (*pluginpb.EvaluateResponse, error) {
	defer s.lease.Contact()()
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	var metrics map[string]float64
	var version int64
	err = guard(l.start.Address, func() (err error) {
		metrics, version, err = l.plugin.evaluate(ctx, int(req.GetLimit()))
		return err
	})
	if err != nil {
		return nil, callError("evaluate "+l.start.Address, err)
	}
	return &pluginpb.EvaluateResponse{Metrics: metrics, PolicyVersion: version}, nil
}

func (s *server) Checkpoint(ctx context.Context, _ *pluginpb.CheckpointRequest) (*pluginpb.CheckpointResponse, error) {
	defer s.lease.Contact()()
	l, err := s.block()
	if err != nil {
		return nil, err
	}
	if err := l.running(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	var c CheckpointInfo
	err = guard(l.start.Address, func() (err error) {
		c, err = l.plugin.checkpoint(ctx)
		return err
	})
	if err != nil {
		return nil, callError("checkpoint "+l.start.Address, err)
	}
	return &pluginpb.CheckpointResponse{Path: c.Path, Step: c.Step, PolicyVersion: c.Version}, nil
}

func callError(what string, err error) error {
	if errors.Is(err, errUnsupported) {
		return status.Errorf(codes.Unimplemented, "%s: %v", what, err)
	}
	return status.Errorf(codes.Unknown, "%s: %s", what, Message(err))
}
