package plugintest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// failing keeps what a test fails with, instead of failing.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, values ...any) {
	f.said = fmt.Sprintf(format, values...)
	runtime.Goexit()
}

// It is all that an author has to go by: a test that waits for what a plugin never does.
func TestAWaitInVainSaysForWhatAndWhatCame(t *testing.T) {
	f := &failing{TB: t}
	b := plugintest.Harness(f, plugintest.FakeInference())
	b.Start(plugintest.FakeConfig{})
	b.Ready()
	minute := plugintest.Deadline
	plugintest.Deadline = 50 * time.Millisecond
	t.Cleanup(func() { plugintest.Deadline = minute })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Wait("the weights of version 7", func(*pluginpb.Event) bool { return false })
	}()
	<-ended
	plugintest.Deadline = minute
	for _, want := range []string{b.Address + ": timed out waiting for the weights of version 7 after 50ms", "ready"} {
		if !strings.Contains(f.said, want) {
			t.Errorf("%q does not say %q", f.said, want)
		}
	}
}
