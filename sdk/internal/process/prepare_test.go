package process_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

type slowConfig struct {
	Inference *spec.Ref `recipe:"inference" reference:"inference" doc:"what it waits for"`
	Fail      string    `recipe:"fail" doc:"with what its preparation fails"`
	Early     bool      `recipe:"early" doc:"its preparation gives outputs"`
	Stays     bool      `recipe:"stays" doc:"its preparation lasts until it is started or stopped"`
}

// slow is an environment that is prepared before it is started, and records it.
type slow struct {
	loaded string
	undone chan struct{}
}

func (s *slow) Prepare(ctx context.Context, req sdk.Request[slowConfig], host sdk.Host, started <-chan struct{}) error {
	host.Phase(sdk.Loading, "loading")
	if req.Config.Fail != "" {
		return &sdk.Error{Summary: "it cannot be loaded", Remedy: "load another", Err: errors.New(req.Config.Fail)}
	}
	if req.Config.Early {
		host.Ready(outputs.Environment{Name: "early", GroupSize: 1})
	}
	if ref := req.Config.Inference; ref != nil {
		s.loaded = "before " + ref.Address + " was ready"
	}
	if !req.Config.Stays {
		return nil
	}
	host.Phase(sdk.Prepared, "loaded")
	select {
	case <-started:
	case <-ctx.Done():
		close(s.undone)
	}
	return nil
}

func (s *slow) Run(ctx context.Context, _ sdk.Request[slowConfig], host sdk.Host) error {
	host.Phase(sdk.Loading, "loaded "+s.loaded)
	host.Ready(outputs.Environment{Name: "slow", GroupSize: 1})
	<-ctx.Done()
	return nil
}

func slowPlugin() (*sdk.Definition, *slow) {
	s := &slow{undone: make(chan struct{})}
	return environment.New("slow", "takes long to start", func() sdk.Service[slowConfig] { return s }), s
}

func inferenceRef() *spec.Ref {
	ref := plugintest.Ref("inference.x.p", kind.Inference, outputs.Inference{BaseURL: "http://127.0.0.1:1"})
	return &ref
}

func TestABlockIsPreparedAndThenStarted(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"it returns": false, "it lasts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def, _ := slowPlugin()
			b := plugintest.Harness(t, def)
			config := slowConfig{Inference: inferenceRef(), Stays: stays}
			b.Prepare(config)
			b.WaitPhase(sdk.Prepared)
			if _, err := b.Client.Update(t.Context(), &pluginpb.UpdateRequest{}); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("an update before the start: %v", err)
			}
			b.Start(config)
			b.Ready()
			if err := b.TryStart(config); status.Code(err) != codes.AlreadyExists {
				t.Errorf("a second start: %v", err)
			}
			var phases []string
			for _, e := range b.Events() {
				if p := e.GetPhase(); p != nil {
					phases = append(phases, strings.TrimSuffix(p.GetPhase()+": "+p.GetMessage(), ": "))
				}
			}
			want := "preparing, preparing: loading, prepared, starting, loading: loaded before inference.x.p was ready, ready"
			if stays {
				want = strings.Replace(want, "prepared", "prepared: loaded", 1)
			}
			if got := strings.Join(phases, ", "); got != want {
				t.Errorf("phases %s\nwant   %s", got, want)
			}
		})
	}
}

func TestABlockIsStoppedInItsPreparation(t *testing.T) {
	t.Parallel()
	def, s := slowPlugin()
	b := plugintest.Harness(t, def)
	b.Prepare(slowConfig{Inference: inferenceRef(), Stays: true})
	b.WaitPhase(sdk.Prepared)
	if err := b.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
	select {
	case <-s.undone:
	default:
		t.Error("Prepare was not asked to undo what it did")
	}
	if err := b.TryStart(slowConfig{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a start after the stop: %v", err)
	}
}

func TestAPreparationFails(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]slowConfig{
		"it cannot be loaded: no room":                  {Fail: "no room"},
		"the plugin gave outputs while it was prepared": {Early: true, Stays: true},
	} {
		def, _ := slowPlugin()
		b := plugintest.Harness(t, def)
		b.Prepare(config)
		e := b.Wait("last phase", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
		if p := e.GetPhase(); !strings.Contains(p.GetMessage(), want) || p.GetRemedy() == "" {
			t.Errorf("failed with %q, remedy %q; want %q", p.GetMessage(), p.GetRemedy(), want)
		}
	}
}
