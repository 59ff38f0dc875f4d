package schema_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Attributes that a health or restart block does not set have the same defaults as without the block.
func TestDefaultsHaveOneSource(t *testing.T) {
	t.Parallel()
	src := `
inference "vllm" "p" {
  model = "m"
  health { failures = 4 }
  restart { attempts = 0 }
}
trajectories "builtin" "t" {
  health { stop_timeout = "0s" }
  restart { delay = "0s" }
}
`
	r, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Plugins: fakePlugins(t)})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	inference, trajectories := r.Lookup(address(t, "inference.vllm.p")).Meta,
		r.Lookup(address(t, "trajectories.builtin.t")).Meta
	health, restart := decode.DefaultHealth(kind.Inference), decode.DefaultRestart()
	health.Failures, restart.Attempts = 4, 0
	if *inference.Health != health || *inference.Restart != restart {
		t.Errorf("got %+v %+v, want %+v %+v", *inference.Health, *inference.Restart, health, restart)
	}
	health, restart = decode.DefaultHealth(kind.Trajectories), decode.DefaultRestart()
	health.StopTimeout, restart.Delay = 0, 0
	if *trajectories.Health != health || *trajectories.Restart != restart {
		t.Errorf("got %+v %+v, want %+v %+v", *trajectories.Health, *trajectories.Restart, health, restart)
	}
}

// start_timeout in a block is an older form of health { start_timeout }, which wins if both are set.
func TestOneTimeoutForStarting(t *testing.T) {
	t.Parallel()
	type slow struct {
		StartTimeout time.Duration `recipe:"start_timeout" deprecated:"write health { start_timeout = … }"`
	}
	config, err := spec.Of(slow{})
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := spec.Of(outputs.Inference{})
	if err != nil {
		t.Fatal(err)
	}
	plugins := fakes{kind.Inference: {"slow": {Kind: kind.Inference, Name: "slow", Config: config, Outputs: outputs}}}
	for body, want := range map[string]time.Duration{
		``:                               0,
		`start_timeout = "30m"`:          30 * time.Minute,
		`health { failures = 1 }`:        decode.DefaultHealth(kind.Inference).StartTimeout,
		`health { start_timeout = "1h"}`: time.Hour,
		"start_timeout = \"30m\"\n health { start_timeout = \"1h\" }": time.Hour,
		"start_timeout = \"30m\"\n health { failures = 1 }":           30 * time.Minute,
	} {
		r, diags := schema.LoadSource("x.hcl", []byte("inference \"slow\" \"p\" {\n "+body+"\n}\n"),
			schema.Options{Plugins: plugins})
		if diags.HasErrors() || (len(diags) > 0) != strings.HasPrefix(body, "start") {
			t.Errorf("%s: %v", body, diags)
		}
		got := time.Duration(0)
		if h := r.Lookup(address(t, "inference.slow.p")).Meta.Health; h != nil {
			got = h.StartTimeout
		}
		if got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	short := func(d time.Duration) string {
		return strings.TrimSuffix(d.String(), "0s")
	}
	row := func(attribute, value string) {
		if !strings.Contains(string(data), "`"+attribute+"` | "+value+" |") {
			t.Errorf("docs/language.md does not give %s as %s", attribute, value)
		}
	}
	h, r := decode.DefaultHealth(kind.Sync), decode.DefaultRestart()
	row("start_timeout", fmt.Sprintf("%s for inference, environment and trainer, else %s",
		short(decode.DefaultHealth(kind.Inference).StartTimeout), short(h.StartTimeout)))
	row("interval", h.Interval.String())
	row("timeout", h.Timeout.String())
	row("failures", fmt.Sprint(h.Failures))
	row("stop_timeout", fmt.Sprintf("%s for a trainer, else %s", short(decode.DefaultHealth(kind.Trainer).StopTimeout),
		h.StopTimeout))
	row("attempts", fmt.Sprint(r.Attempts))
	row("window", short(r.Window))
	row("delay", r.Delay.String())
	row("max_delay", short(r.MaxDelay))
	row("mode", r.Mode)
}
