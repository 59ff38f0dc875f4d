package run_test

import (
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/sdk"
)

const served = `
inference "x" "p" {
  model = "m"
}
trainer "x" "t" {}
output "url"   { value = inference.x.p.base_url }
output "model" { value = "m" }
output "key" {
  value     = inference.x.p.api_key
  sensitive = true
}
`

// Nobody is sent to the server of an earlier apply: an output is known once the blocks of this one have told it, and
// that is said of a sensitive one, too.
func TestOutputsAreThoseOfThisApply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, 5*time.Millisecond)
	first := f.apply(f.load(served))
	f.until("the url is known", func() bool { return f.record().Outputs["url"].Value != nil })
	if err := first.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	first.wait()

	loaded := make(chan struct{})
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.say(sdk.Loading, "", "")
		select {
		case <-loaded:
			service(p)
		case <-p.stopping:
			p.say(sdk.Stopped, "", "")
		}
	}
	second := f.apply(f.load(served))
	f.until("the server loads", func() bool { return f.recordedBlock(inf).Phase == string(sdk.Loading) })
	f.until("the model is known", func() bool { return f.record().Outputs["model"].Value != nil })
	if stale, ok := f.record().Outputs["url"]; ok {
		t.Errorf("while the server loads its address is said to be %s", stale.Value)
	}
	close(loaded)
	f.until("the url is known again", func() bool { return f.record().Outputs["url"].Value != nil })
	if err := second.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	second.wait()

	var told []string
	for _, e := range f.events() {
		if e.Type == event.Output && e.Name == "key" {
			if told = append(told, e.Name); e.Value != nil || !e.Sensitive {
				t.Errorf("the log says of a sensitive output: %+v", e)
			}
		}
	}
	if !slices.Equal(told, []string{"key", "key"}) {
		t.Errorf("of the sensitive output the log told %d times that it is known, want once in each apply", len(told))
	}
}
