package run

import (
	"context"
	"errors"
	"strings"
	"testing"

	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
)

// oneCheckpoint is a process that reports a checkpoint.
type oneCheckpoint struct {
	Process
	path string
}

func (p oneCheckpoint) Watch(_ context.Context, _ uint64, each func(blockevent.Event)) error {
	saved := sdk.CheckpointInfo{Step: 3, Path: p.path}
	each(blockevent.Event{Seq: 7, Body: blockevent.Checkpoint{CheckpointInfo: saved}})
	return nil
}

// brought are files of another machine.
type brought struct{ pull func() error }

func (brought) There(path string) string         { return strings.Replace(path, "/here", "/there", 1) }
func (brought) Here(path string) string          { return strings.Replace(path, "/there", "/here", 1) }
func (brought) Own(path string) bool             { return strings.HasPrefix(path, "/here/") }
func (b brought) Pull(ctx context.Context) error { return b.pull() }

// A checkpoint whose files are not on this machine must not become the one from which the next attempt continues.
func TestACheckpointCountsWhenItsFilesAreHere(t *testing.T) {
	t.Parallel()
	path := "/there/step-3"
	watch := func(ctx context.Context, pull func() error) (seen []blockevent.Event) {
		p := stagedProcess{oneCheckpoint{path: path}, brought{pull}}
		if err := p.Watch(ctx, 0, func(e blockevent.Event) { seen = append(seen, e) }); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	seen := watch(t.Context(), func() error { return nil })
	if c, ok := seen[0].Body.(blockevent.Checkpoint); !ok || c.Path != "/here/step-3" || seen[0].Seq != 7 {
		t.Errorf("a checkpoint that is here is reported as %+v", seen)
	}
	seen = watch(t.Context(), func() error { return errors.New("no space left on device") })
	if l, ok := seen[0].Body.(blockevent.LogLine); !ok || l.Level != "error" || seen[0].Seq != 7 ||
		!strings.Contains(l.Message, "step 3 counts for nothing") || !strings.Contains(l.Message, "no space left") {
		t.Errorf("a checkpoint that is not here is reported as %+v", seen)
	}
	path = "/home/me/model" // on a machine that is another's by now
	seen = watch(t.Context(), func() error { return nil })
	if l, ok := seen[0].Body.(blockevent.LogLine); !ok || !strings.Contains(l.Message, path+"; expected one in its") {
		t.Errorf("a checkpoint outside of the block's folders is reported as %+v", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if seen = watch(ctx, func() error { cancel(); return ctx.Err() }); len(seen) > 0 {
		t.Errorf("an engine that ends takes %+v, of which the next one is not told again", seen)
	}
}
