package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Suite describes how a plugin is tested.
type Suite struct {
	// Config makes a configuration that works, the plugin's struct or a cty object, with whatever it refers to
	// (FakeInference, FakeTrainer, FakeTrajectories). It is called again for each check.
	Config func(t *testing.T) any
	// Bad are configurations that must be refused, by what is wrong with them.
	Bad map[string]func(t *testing.T) any
	// Options change the request of Start.
	Options []Option
	// Grace is how long the block may take to stop. Default: 20 seconds.
	Grace time.Duration
	// Weights, for inference, writes weights of a policy version into a folder, as a trainer would, and says what the
	// plugin must then give as log-probabilities of tokens (nil: not compared). Without it weight updates are not tested.
	Weights func(t *testing.T, dir string, version int64) sdk.Weights
	// Groups, for environments, makes a configuration and the trajectory API that it refers to, so that the groups can
	// be looked at.
	Groups func(t *testing.T) (config any, api *Trajectories)
	// Synced, for sync plugins, starts a fake trainer, which makes three steps, and a fake inference block, and makes a
	// configuration that joins them. Without it weight updates are not tested.
	Synced func(t *testing.T) (config any, trainer, inference *Block)
	// Executor, for executors, says how they are reached and what they can do. Without an Open the definition is opened
	// in the test's process, over gRPC.
	Executor ExecutorSuite
	// Launch starts the plugin in a process of its own. Nil: the definition is served in the test's process, where
	// goroutines that a block leaves behind are found, too.
	Launch Launch
	// Leaks are functions whose goroutines may outlive a block, as goleak names them.
	Leaks []string

	separate bool // the plugin has a process of its own
}

// harness is Harness for the plugin of the suite.
func (s Suite) harness(t *testing.T, def *sdk.Definition) *Block {
	t.Helper()
	return harness(t, def, s.Launch)
}

// Compliance runs the checks that every plugin must pass, those of all kinds and those of its own. Checks that look for
// leaks do not run side by side with other tests, so call it from a test that is not parallel.
func Compliance(t *testing.T, def *sdk.Definition, s Suite) {
	t.Helper()
	if s.Grace == 0 {
		s.Grace = 20 * time.Second
	}
	if s.Launch == nil {
		s.Launch = inProcess
	} else {
		s.separate = true
	}
	t.Run("describe", func(t *testing.T) { describe(t, def, s) })
	t.Run("plan and validate touch nothing", func(t *testing.T) { dryRun(t, def, s) })
	if def.Kind == kind.Executor { // its blocks are not started
		executorChecks(t, def, s)
		return
	}
	t.Run("ready", func(t *testing.T) { ready(t, def, s) })
	t.Run("events", func(t *testing.T) { events(t, def, s) })
	t.Run("second start", func(t *testing.T) { secondStart(t, def, s) })
	t.Run("prepare", func(t *testing.T) { prepares(t, def, s) })
	t.Run("stop leaves nothing", func(t *testing.T) { stopLeavesNothing(t, def, s) })
	t.Run("stop before ready", func(t *testing.T) { stopBeforeReady(t, def, s) })
	t.Run("bad configurations", func(t *testing.T) { badConfigurations(t, def, s) })
	switch def.Kind {
	case kind.Inference:
		inferenceChecks(t, def, s)
	case kind.Trainer:
		trainerChecks(t, def, s)
	case kind.Environment:
		environmentChecks(t, def, s)
	case kind.Sync:
		syncChecks(t, def, s)
	case kind.Trajectories:
		trajectoriesChecks(t, def, s)
	default:
	}
}

// started is a block that runs.
func (s Suite) started(t *testing.T, def *sdk.Definition, opts ...Option) *Block {
	t.Helper()
	config := s.Config(t)
	b := s.harness(t, def)
	b.Start(config, append(append([]Option(nil), s.Options...), opts...)...)
	return b
}

func describe(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.harness(t, def)
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	first, err := b.Client.Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Client.Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.GetSchema(), second.GetSchema()) || !bytes.Equal(first.GetOutputs(), second.GetOutputs()) {
		t.Error("two descriptions differ: digests and saved plans would not hold")
	}
	if !kind.Kind(first.GetKind()).Valid() || first.GetName() == "" || first.GetVersion() == "" ||
		first.GetSummary() == "" {
		t.Errorf("kind %q, name %q, version %q, summary %q: all four must be there", first.GetKind(), first.GetName(),
			first.GetVersion(), first.GetSummary())
	}
	if strings.HasSuffix(first.GetSummary(), ".") {
		t.Errorf("the summary %q ends with a full stop: it stands in tables, without one", first.GetSummary())
	}
	config, err := spec.Parse(first.GetSchema())
	if err != nil {
		t.Fatalf("the schema of the block cannot be read: %v", err)
	}
	outputs, err := spec.Parse(first.GetOutputs())
	if err != nil {
		t.Fatalf("the schema of the outputs cannot be read: %v", err)
	}
	documented(t, "", config)
	documented(t, "output ", outputs)
	for _, a := range kindOutputs(t, def.Kind).Attributes {
		if got := outputs.Attribute(a.Name); got == nil || !got.Type.Equals(a.Type) {
			t.Errorf("the output %q of every %s block is missing or of another type", a.Name, def.Kind)
		}
	}
}

// documented names which attributes lack a description.
func documented(t *testing.T, path string, s *spec.Schema) {
	t.Helper()
	for _, a := range s.Attributes {
		if strings.TrimSpace(a.Doc) == "" {
			t.Errorf("attribute %s%s has no doc", path, a.Name)
		}
	}
	for _, b := range s.Blocks {
		documented(t, path+b.Name+".", b.Schema)
	}
}

func kindOutputs(t *testing.T, k kind.Kind) *spec.Schema {
	t.Helper()
	structs := map[kind.Kind]any{
		kind.Inference: outputs.Inference{}, kind.Trajectories: outputs.Trajectories{},
		kind.Environment: outputs.Environment{},
		kind.Trainer:     outputs.Trainer{}, kind.Sync: outputs.Sync{}, kind.Executor: struct{}{},
	}
	schema, err := spec.Of(structs[k])
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// dryRun plans and validates with a configuration that works and with one whose values are unknown.
func dryRun(t *testing.T, def *sdk.Definition, s Suite) {
	known := s.Config(t)
	b := s.harness(t, def)
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	unknown := map[string]cty.Value{}
	for _, a := range def.Schema.Attributes {
		unknown[a.Name] = cty.UnknownVal(a.Type)
	}
	for name, config := range map[string]any{"known": known, "unknown": cty.ObjectVal(unknown)} {
		data := b.Request(config).GetConfig()
		r, err := b.Client.Validate(ctx, &pluginpb.ValidateRequest{Config: data})
		if err != nil {
			t.Errorf("validate with %s values: %v", name, err)
		}
		for _, d := range r.GetDiagnostics() {
			if !d.GetWarning() {
				t.Errorf("validate with %s values: %s: %s", name, d.GetSummary(), d.GetDetail())
			}
		}
		plan, err := b.Client.Plan(ctx, &pluginpb.PlanRequest{Config: data, Address: b.Address})
		if err != nil {
			t.Errorf("plan with %s values: %v", name, err)
		}
		for _, a := range plan.GetEstimate().GetAmounts() {
			if a.GetResource() == "" || a.GetHow() == "" || a.GetValue() < 0 {
				t.Errorf("plan with %s values: amount %v lacks its resource or the sum that leads to it", name, a)
			}
		}
	}
	if entries := b.Events(); len(entries) > 0 {
		t.Errorf("events before the start: %v", entries)
	}
}

func ready(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def)
	outputs := b.Ready()
	for _, a := range def.Outputs.Attributes {
		if v := outputs.GetAttr(a.Name); !v.IsKnown() {
			t.Errorf("the output %q is unknown although the block is ready", a.Name)
		}
	}
	st := b.Status()
	if st.GetAddress() != b.Address || st.GetRunId() != "test-run" || st.GetPid() == 0 || st.GetLastEvent() == 0 {
		t.Errorf("status does not identify the block: %v", st.GetAddress())
	}
}

// events reads some, disconnects, and reconnects with the number of the last one.
func events(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def)
	b.Ready()
	if err := b.Stop(s.Grace); err != nil {
		t.Fatal(err)
	}
	b.Wait("last phase", func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() })
	last := b.Status().GetLastEvent()
	for after := uint64(0); after <= last; after++ {
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		stream, err := b.Client.Watch(ctx, &pluginpb.WatchRequest{After: after})
		if err != nil {
			t.Fatal(err)
		}
		next := after + 1
		for {
			e, err := stream.Recv()
			if err != nil {
				break
			}
			if e.GetSeq() != next {
				t.Errorf("after %d: event %d where %d was due", after, e.GetSeq(), next)
			}
			if e.GetTimeUnixNano() == 0 {
				t.Errorf("event %d has no time", e.GetSeq())
			}
			next = e.GetSeq() + 1
		}
		cancel()
		if next != last+1 {
			t.Errorf("after %d: the stream ended before event %d, the last is %d", after, next, last)
		}
		if after > 20 {
			after = max(after, last-1)
		}
	}
}

func secondStart(t *testing.T, def *sdk.Definition, s Suite) {
	config := s.Config(t)
	b := s.harness(t, def)
	b.Start(config, s.Options...)
	if err := b.TryStart(config, s.Options...); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a second start: %v, want AlreadyExists", err)
	}
}

func stopLeavesNothing(t *testing.T, def *sdk.Definition, s Suite) {
	before := goleak.IgnoreCurrent()
	var listen string
	var handle []byte
	// What the configuration refers to ends with this part, too: its connections would look like leaks.
	t.Run("block", func(t *testing.T) {
		config := s.Config(t)
		b := s.harness(t, def)
		b.Start(config, s.Options...)
		b.Ready()
		st := b.Status()
		listen, handle = st.GetListen(), st.GetHandle()
		begun := time.Now()
		if err := b.Stop(s.Grace); err != nil {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(begun); took > s.Grace {
			t.Errorf("stop took %s, its grace was %s", took, s.Grace)
		}
		e := b.Wait("last phase",
			func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() }).GetPhase()
		if e.GetPhase() == string(sdk.Failed) {
			t.Errorf("it failed when it was stopped: %s", e.GetMessage())
		}
	})
	for _, h := range proc.Parse(handle) {
		if h.Alive() {
			t.Errorf("program %s (pid %d) is still there", h.Name, h.PID)
		}
	}
	if listen != "" {
		if c, err := net.DialTimeout("tcp", listen, time.Second); err == nil {
			_ = c.Close()
			t.Errorf("%s still listens", listen)
		}
	}
	if s.separate {
		return
	}
	options := []goleak.Option{before}
	for _, name := range s.Leaks {
		options = append(options, goleak.IgnoreAnyFunction(name))
	}
	goleak.VerifyNone(t, options...)
}

// prepares has a block prepared before what it refers to is there; one that lacks the stage says so.
func prepares(t *testing.T, def *sdk.Definition, s Suite) {
	if !slices.Contains(def.Capabilities, protocol.CanPrepare) {
		b := s.harness(t, def)
		if err := b.TryPrepare(s.Config(t), s.Options...); status.Code(err) != codes.Unimplemented {
			t.Errorf("prepare: %v, want Unimplemented", err)
		}
		return
	}
	t.Run("then ready", func(t *testing.T) {
		config := s.Config(t)
		b := s.harness(t, def)
		shares := func(shared bool) []Option {
			return append(slices.Clip(s.Options), func(r *pluginpb.StartRequest) { r.SharesDevices = shared })
		}
		b.Prepare(config, shares(true)...)
		if err := b.TryPrepare(config, shares(true)...); status.Code(err) != codes.AlreadyExists {
			t.Errorf("a second preparation: %v, want AlreadyExists", err)
		}
		b.WaitPhase(sdk.Prepared)
		if err := b.TryPrepare(config, shares(false)...); err != nil {
			t.Errorf("told that others have taken their memory of its devices: %v", err)
		}
		if err := b.TryPrepare(config, shares(false)...); status.Code(err) != codes.AlreadyExists {
			t.Errorf("told that again: %v, want AlreadyExists", err)
		}
		if len(b.Status().GetOutputs()) > 0 {
			t.Error("it gave outputs before it was started")
		}
		b.Start(config, s.Options...)
		b.Ready()
		if err := b.Stop(s.Grace); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	t.Run("started before it is prepared", func(t *testing.T) {
		config := s.Config(t)
		b := s.harness(t, def)
		b.Prepare(config, s.Options...)
		b.Start(config, s.Options...)
		b.Ready()
	})
	t.Run("stop leaves nothing", func(t *testing.T) {
		b := s.harness(t, def)
		b.Prepare(s.Config(t), s.Options...)
		b.WaitPhase(sdk.Prepared)
		handle := b.Status().GetHandle()
		if err := b.Stop(s.Grace); err != nil {
			t.Errorf("stop: %v", err)
		}
		b.WaitPhase(sdk.Stopped)
		for _, h := range proc.Parse(handle) {
			if h.Alive() {
				t.Errorf("program %s (pid %d) is still there", h.Name, h.PID)
			}
		}
	})
}

func stopBeforeReady(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def)
	if err := b.Stop(s.Grace); err != nil {
		t.Errorf("stop: %v", err)
	}
	e := b.Wait("last phase",
		func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() }).GetPhase()
	if e.GetPhase() == string(sdk.Failed) {
		t.Errorf("it failed when it was stopped: %s", e.GetMessage())
	}
}

func badConfigurations(t *testing.T, def *sdk.Definition, s Suite) {
	bad := map[string]func(*testing.T) any{}
	for name, config := range s.Bad {
		bad[name] = config
	}
	for _, a := range def.Schema.Attributes {
		if a.Required {
			bad["without "+a.Name] = func(t *testing.T) any { return without(t, def, s.Config(t), a.Name) }
		}
	}
	for name, config := range bad {
		t.Run(name, func(t *testing.T) {
			given := config(t)
			b := s.harness(t, def)
			err := b.TryStart(given, s.Options...)
			if err == nil {
				e := b.Wait("failure",
					func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() }).GetPhase()
				if e.GetPhase() != string(sdk.Failed) || e.GetMessage() == "" {
					t.Errorf("the configuration was accepted: %v", e)
				}
				return
			}
			if status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Message()) < 10 {
				t.Errorf("the configuration is refused without a reason: %v", err)
			}
		})
	}
}

// without is a configuration that lacks one attribute.
func without(t *testing.T, def *sdk.Definition, config any, name string) cty.Value {
	t.Helper()
	value, ok := config.(cty.Value)
	if !ok {
		var err error
		if value, err = spec.Encode(def.Schema, config); err != nil {
			t.Fatal(err)
		}
	}
	attributes := value.AsValueMap()
	attributes[name] = cty.NullVal(def.Schema.Attribute(name).Type)
	return cty.ObjectVal(attributes)
}

// equalJSON compares two values by their JSON.
func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && reflect.DeepEqual(x, y)
}
