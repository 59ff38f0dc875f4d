package run_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// An output that repeats a secret is not stored. Once the block that told it has ended, the engine of the continued run
// does not know it: what needs it fails and says so, and does not start with null.
func TestAnOutputThatRepeatsASecretIsMissedAloud(t *testing.T) {
	t.Parallel()
	const canary = "canary-41c6e0aa"
	const source = `
trainer "x" "first" {
  environment_variables = { TOKEN = env("HUB") }
}
inference "x" "p" {
  model      = trainer.x.first.checkpoint
  depends_on = [trainer.x.first]
}
environment "x" "e" {
  inference = inference.x.p
}
trainer "x" "t" {
  environments = [environment.x.e]
}
output "checkpoint" { value = trainer.x.first.checkpoint }
`
	f := newFixture(t)
	f.host.scripts["trainer.x.first"] = func(p *fakeProcess) {
		p.ready(canary) // which is in the path of its checkpoint
		p.say(sdk.Completed, "", "")
	}
	f.host.scripts[trainer] = job(1<<20, time.Millisecond)
	a := f.apply(f.load(source, "HUB="+canary))
	f.until("the second stage runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	if got := f.host.startsOf(inf)[0].Config; !strings.Contains(got.GoString(), "/checkpoints/"+canary) {
		t.Fatalf("inference got %#v", got)
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	a = f.apply(f.load(source, "HUB="+canary)).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), "needs trainer.x.first.checkpoint, which contains a secret") ||
		!strings.Contains(a.err.Error(), "nonsensitive(…)") {
		t.Errorf("the continued run ended with %v", a.err)
	}
	if n := len(f.host.startsOf(inf)); n != 1 {
		t.Errorf("inference was started %d times, want once", n)
	}
	if out := f.record().Outputs["checkpoint"]; !out.Sensitive || out.Value != nil {
		t.Errorf("the output of the recipe is %+v", out)
	}
}
