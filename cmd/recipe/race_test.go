package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// Several people detach the same run at the same moment: one engine is started, and everybody is told which.
//
//docs:survival.md several recipe apply at the same moment, --detach too
func TestSeveralDetachAtOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			type end struct {
				out string
				err error
			}
			ends := make(chan end, n)
			for range n {
				go func() {
					out, err := w.command("apply", "-y", "--detach", "--var", "steps=1000000",
						"quickstart.hcl").CombinedOutput()
					ends <- end{string(out), err}
				}()
			}
			named := regexp.MustCompile(`engine process (\d+)`)
			var said []end
			for range n {
				said = append(said, <-ends)
			}
			owner := state.Holder(state.DirOf(w.dir, "quickstart"))
			if owner == nil {
				t.Fatalf("no engine is running on the run: %v", said)
			}
			started := 0
			for _, e := range said {
				m := named.FindStringSubmatch(e.out)
				switch {
				case m == nil && e.err == nil && (strings.Contains(e.out, "An engine already runs it") ||
					strings.Contains(e.out, "Sent to the engine")):
				case m == nil:
					t.Errorf("an apply names no engine: %v\n%s", e.err, e.out)
				case m[1] != fmt.Sprint(owner.PID):
					t.Errorf("an apply names engine %s, and %d works on the run\n%s", m[1], owner.PID, e.out)
				case strings.Contains(e.out, "The run continues in engine process"):
					if started++; e.err != nil {
						t.Errorf("the one that got the run failed: %v", e.err)
					}
				}
			}
			if started != 1 {
				t.Errorf("%d applies say that they have started the run", started)
			}
			if logs, _ := filepath.Glob(filepath.Join(w.dir, ".recipe", "quickstart", "engine.log*")); len(logs) != 1 ||
				filepath.Base(logs[0]) != "engine.log" {
				t.Errorf("the logs of engines are %v, expected engine.log alone", logs)
			}
		})
	}
}
