package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	plugin "github.com/hashicorp/go-plugin"
	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/eventlog"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plugin is a connected plugin process. It is safe for concurrent use. Every method except Exit takes its deadline from
// the context: a suspended plugin does not answer.
type Plugin struct {
	rpc        pluginpb.PluginClient
	connection *plugin.GRPCClient
	process    Process
	runner     Runner
	record     record
	dir        string

	mu          sync.Mutex
	description *Description
}

// listenerSocket is where a plugin process offers its listening socket, in the folder of its own socket.
func listenerSocket(folder string) string { return filepath.Join(folder, "listener") }

// Listener takes a copy of the socket on which the block listens, so that its port stays taken when the process ends.
// It is nil for a process on another machine.
func (p *Plugin) Listener(ctx context.Context) (*listener.Kept, error) {
	if p.record.Process.Host != "" {
		return nil, nil
	}
	return listener.Take(ctx, listenerSocket(filepath.Dir(p.record.Address)))
}

// Description is a plugin's description of itself.
type Description struct {
	Kind             kind.Kind
	Name, Version    string
	Summary          string
	ProtocolVersions []uint32
	Config, Outputs  *spec.Schema
	Capabilities     []string // "checkpoint", "evaluate", "nodes", "plan", "prepare", "update", "validate"
}

// Can reports whether the plugin has an optional ability.
func (d *Description) Can(capability string) bool {
	return slices.Contains(d.Capabilities, capability)
}

// Start is the start request of a block; see sdk.Request for the meaning of each field.
type Start = wire.Start

// Status is the state of a block.
type Status struct {
	RunID, Address string
	PID            int
	Phase          sdk.Phase
	// NilVal before the block was ready. Some are sensitive: never log or store them unredacted.
	Outputs       cty.Value
	LastEvent     uint64
	Error         string
	Handle        []byte
	Listen        string
	PolicyVersion int64
	Reports       bool // the block reports activities: an empty list means that it is idle
	Activities    []sdk.Activity
}

// Diagnostic is one problem at a path inside of a block's body.
type Diagnostic = spec.Problem

// Describe returns the plugin's description of itself; it asks once.
func (p *Plugin) Describe(ctx context.Context) (*Description, error) {
	p.mu.Lock()
	known := p.description
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	r, err := p.rpc.Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		return nil, p.failed("describe", err)
	}
	d, err := descriptionOf(r)
	if err != nil {
		return nil, fmt.Errorf("describe plugin %s/%s: %w", p.record.Kind, p.record.Name, err)
	}
	p.mu.Lock()
	p.description = d
	p.mu.Unlock()
	return d, nil
}

func descriptionOf(r *pluginpb.DescribeResponse) (*Description, error) {
	d := &Description{
		Kind: kind.Kind(r.GetKind()), Name: r.GetName(), Version: r.GetVersion(), Summary: r.GetSummary(),
		ProtocolVersions: r.GetProtocolVersions(), Capabilities: r.GetCapabilities(),
	}
	var err error
	if d.Config, err = spec.Parse(r.GetSchema()); err != nil {
		return nil, fmt.Errorf("the schema of its block: %w", err)
	}
	if d.Outputs, err = spec.Parse(r.GetOutputs()); err != nil {
		return nil, fmt.Errorf("the schema of its outputs: %w", err)
	}
	return d, nil
}

// marshal encodes a configuration with the plugin's own schema.
func (p *Plugin) marshal(ctx context.Context, config cty.Value) ([]byte, error) {
	d, err := p.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return spec.Marshal(config, d.Config)
}

// Validate has the plugin check a configuration, which may contain unknown values.
func (p *Plugin) Validate(ctx context.Context, config cty.Value) ([]Diagnostic, error) {
	data, err := p.marshal(ctx, config)
	if err != nil {
		return nil, p.failed("validate", err)
	}
	r, err := p.rpc.Validate(ctx, &pluginpb.ValidateRequest{Config: data})
	if err != nil {
		return nil, p.failed("validate", err)
	}
	return wire.DecodeProblems(r.GetDiagnostics())
}

// Plan asks the plugin what the block will need.
func (p *Plugin) Plan(ctx context.Context, address string, config cty.Value,
	placement sdk.Placement) (sdk.Estimate, []Diagnostic, error) {
	data, err := p.marshal(ctx, config)
	if err != nil {
		return sdk.Estimate{}, nil, p.failed("plan", err)
	}
	r, err := p.rpc.Plan(ctx, &pluginpb.PlanRequest{Config: data, Address: address,
		Placement: wire.EncodePlacement(placement)})
	if err != nil {
		return sdk.Estimate{}, nil, p.failed("plan", err)
	}
	problems, err := wire.DecodeProblems(r.GetDiagnostics())
	return wire.DecodeEstimate(r.GetEstimate()), problems, err
}

// Prepare begins what the block can do before the blocks that it refers to are ready, and returns at once; Start
// follows. Values of the configuration may be unknown.
func (p *Plugin) Prepare(ctx context.Context, s Start) error {
	config, err := p.marshal(ctx, s.Config)
	if err == nil {
		_, err = p.rpc.Prepare(ctx, &pluginpb.PrepareRequest{Start: wire.EncodeStart(s, config)})
	}
	if err != nil {
		return p.failed("prepare", err)
	}
	return nil
}

// Start begins the block's attempt and returns at once; Watch reports its events.
func (p *Plugin) Start(ctx context.Context, s Start) error {
	config, err := p.marshal(ctx, s.Config)
	if err != nil {
		return p.failed("start", err)
	}
	_, err = p.rpc.Start(ctx, wire.EncodeStart(s, config))
	if err != nil {
		return p.failed("start", err)
	}
	return nil
}

// Update passes new values of attributes that change live.
func (p *Plugin) Update(ctx context.Context, config cty.Value) error {
	data, err := p.marshal(ctx, config)
	if err == nil {
		_, err = p.rpc.Update(ctx, &pluginpb.UpdateRequest{Config: data})
	}
	if err != nil {
		return p.failed("update", err)
	}
	return nil
}

// Stop drains and ends the block within the grace period, at once with kill. The process stays up to answer Status and
// Watch until Exit. The context must last longer than the grace.
func (p *Plugin) Stop(ctx context.Context, grace time.Duration, kill bool, reason string) error {
	_, err := p.rpc.Stop(ctx, &pluginpb.StopRequest{GraceMs: grace.Milliseconds(), Kill: kill, Reason: reason})
	if err != nil {
		return p.failed("stop", err)
	}
	return nil
}

// Status asks the plugin for the state of its block.
func (p *Plugin) Status(ctx context.Context) (Status, error) {
	r, err := p.rpc.Status(ctx, &pluginpb.StatusRequest{})
	if err != nil {
		return Status{}, p.failed("get the status of", err)
	}
	s := Status{
		RunID: r.GetRunId(), Address: r.GetAddress(), PID: int(r.GetPid()), Phase: sdk.Phase(r.GetPhase()),
		LastEvent: r.GetLastEvent(),
		Error:     r.GetError(), Handle: r.GetHandle(), Listen: r.GetListen(), PolicyVersion: r.GetPolicyVersion(),
		Outputs: cty.NilVal,
		Reports: r.GetReportsActivities(),
	}
	now := time.Now()
	for _, a := range r.GetActivities() {
		s.Activities = append(s.Activities, wire.DecodeActivity(a, now))
	}
	if len(r.GetOutputs()) > 0 {
		d, err := p.Describe(ctx)
		if err != nil {
			return Status{}, err
		}
		if s.Outputs, err = spec.Unmarshal(r.GetOutputs(), d.Outputs); err != nil {
			return Status{}, p.failed("get the status of", err)
		}
	}
	return s, nil
}

// Attach makes this engine the owner of the plugin; lease is how long it may live without contact to an engine; 0: no
// limit.
func (p *Plugin) Attach(ctx context.Context, engineID string, lease time.Duration) error {
	_, err := p.rpc.Attach(ctx, &pluginpb.AttachRequest{EngineId: engineID, LeaseMs: lease.Milliseconds()})
	if err != nil {
		return p.failed("attach to", err)
	}
	return nil
}

// Watch calls each for every event after a sequence number, in order, stored ones first. It returns nil when the block
// is over and all events were delivered, and an error when the context ends or the plugin has died; then continue after
// the last event seen, with LastEvents if the plugin is dead.
func (p *Plugin) Watch(ctx context.Context, after uint64, each func(event.Event)) error {
	d, err := p.Describe(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.rpc.Watch(ctx, &pluginpb.WatchRequest{After: after})
	if err != nil {
		return p.failed("watch", err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if isEOF(err) {
				return nil
			}
			return p.failed("watch", err)
		}
		e, err := wire.DecodeEvent(m, d.Outputs)
		if err != nil {
			return p.failed("watch", err)
		}
		if e.Body != nil {
			each(e)
		}
	}
}

// LastEvents returns the events after a sequence number that a dead plugin has left in its directory. Outputs is the
// schema of its outputs.
func LastEvents(dir string, after uint64, outputs *spec.Schema) ([]event.Event, error) {
	events, err := eventlog.Read(filepath.Join(dir, eventlog.FileName), after, outputs)
	if err != nil {
		return nil, fmt.Errorf("events in %s: %w", dir, err)
	}
	return slices.DeleteFunc(events, func(e event.Event) bool { return e.Body == nil }), nil
}

// Evaluate runs an environment's evaluation once. Limit 0 means the whole held-out set. The scores have every
// completion, where the plugin returns them.
func (p *Plugin) Evaluate(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error) {
	r, err := p.rpc.Evaluate(ctx, &pluginpb.EvaluateRequest{Limit: int64(limit)}, grpc.MaxCallRecvMsgSize(maxEvaluation))
	if err != nil {
		return nil, sdk.TaskScores{}, p.failed("evaluate", err)
	}
	return r.GetMetrics(), wire.DecodeTaskScores(r), nil
}

// EvaluateTasks asks an environment for the scores of held-out tasks.
func (p *Plugin) EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error) {
	r, err := p.rpc.Evaluate(ctx, &pluginpb.EvaluateRequest{First: int64(req.First), Limit: int64(req.Limit),
		Samples: int64(req.Samples), Temperature: req.Temperature, Seed: req.Seed}, grpc.MaxCallRecvMsgSize(maxEvaluation))
	if err != nil {
		return sdk.TaskScores{}, p.failed("evaluate", err)
	}
	return wire.DecodeTaskScores(r), nil
}

// Rescore has an environment score a recorded group again.
func (p *Plugin) Rescore(ctx context.Context, group sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	r, err := p.rpc.Rescore(ctx, wire.EncodeRecorded(group))
	if err != nil {
		return sdk.RescoredGroup{}, p.failed("rescore by", err)
	}
	return wire.DecodeRescored(r), nil
}

// Client is the connection to the plugin, for the compliance suite: it drives the protocol itself.
func (p *Plugin) Client() pluginpb.PluginClient { return p.rpc }

// Checkpoint makes a trainer write a checkpoint now.
func (p *Plugin) Checkpoint(ctx context.Context) (sdk.CheckpointInfo, error) {
	r, err := p.rpc.Checkpoint(ctx, &pluginpb.CheckpointRequest{})
	if err != nil {
		return sdk.CheckpointInfo{}, p.failed("checkpoint", err)
	}
	return sdk.CheckpointInfo{Path: r.GetPath(), Step: r.GetStep(), Version: r.GetPolicyVersion()}, nil
}

// Pause makes the block begin no new work, or go on. It returns when the work in progress has ended; inference lets its
// requests in flight end later.
func (p *Plugin) Pause(ctx context.Context, paused bool) error {
	if _, err := p.rpc.Pause(ctx, &pluginpb.PauseRequest{Paused: paused}); err != nil {
		return p.failed("pause", err)
	}
	return nil
}

// Stack holds the stacks of one program of a block.
type Stack struct {
	Program     string
	PID         int
	Text, Error string
}

// Stacks asks the plugin for its stacks and those of its programs.
func (p *Plugin) Stacks(ctx context.Context) ([]Stack, error) {
	r, err := p.rpc.Stacks(ctx, &pluginpb.StacksRequest{})
	if err != nil {
		return nil, p.failed("get the stacks of", err)
	}
	var out []Stack
	for _, s := range r.GetStacks() {
		out = append(out, Stack{Program: s.GetProgram(), PID: int(s.GetPid()), Text: s.GetText(), Error: s.GetError()})
	}
	return out, nil
}

// PID is the process id of the plugin.
func (p *Plugin) PID() int { return p.process.Identity().PID }

// Exited is closed when the plugin process has ended.
func (p *Plugin) Exited() <-chan struct{} { return p.process.Exited() }

// Cut implements Distant: zero for a process of this machine.
func (p *Plugin) Cut() time.Time {
	if d, ok := p.process.(Distant); ok {
		return d.Cut()
	}
	return time.Time{}
}

// Ended describes how the plugin process ended, if known; see Process.
func (p *Plugin) Ended() string { return p.process.Ended() }

// ErrUnsupported reports that the plugin lacks an optional ability.
var ErrUnsupported = errors.New("the plugin does not support this")

// ErrInvalid reports that the plugin rejects the request; retrying cannot help.
var ErrInvalid = errors.New("the plugin rejects it as invalid, so retrying cannot help")

// ErrExists reports that the process was asked for it before.
var ErrExists = errors.New("the process does so already")

// place leads to the first setting that a plugin refuses; nil: it names none, as plugins of older versions do.
func place(s *status.Status) cty.Path {
	for _, detail := range s.Details() {
		refused, ok := detail.(*pluginpb.ValidateResponse)
		if !ok {
			continue
		}
		problems, err := wire.DecodeProblems(refused.GetDiagnostics())
		if err != nil {
			return nil
		}
		for _, p := range problems {
			if len(p.Path) > 0 {
				return p.Path
			}
		}
	}
	return nil
}

// failed names the call and the block, without gRPC's wrapping.
func (p *Plugin) failed(what string, err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%s %s: %w", what, p.record.Block, err)
	}
	switch s.Code() {
	case codes.Unimplemented:
		return fmt.Errorf("%s %s: %w", what, p.record.Block, ErrUnsupported)
	case codes.AlreadyExists:
		return fmt.Errorf("%s %s: %w: %s", what, p.record.Block, ErrExists, s.Message())
	case codes.InvalidArgument:
		return &sdk.Error{Summary: fmt.Sprintf("%s %s", what, p.record.Block), Path: place(s),
			Err: fmt.Errorf("%w: %s", ErrInvalid, s.Message())}
	case codes.Canceled:
		return fmt.Errorf("%s %s: %w", what, p.record.Block, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s %s: %w: %s", what, p.record.Block, context.DeadlineExceeded, s.Message())
	case codes.Unavailable:
		select {
		case <-p.Exited():
			return fmt.Errorf("%s %s: %w (pid %d)", what, p.record.Block, ErrGone, p.PID())
		default:
		}
	default:
	}
	return fmt.Errorf("%s %s: %s", what, p.record.Block, s.Message())
}
