package single

import (
	"context"
	"fmt"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// Block is a started block.
type Block struct {
	Addr    addr.Block
	Plugin  *host.Plugin
	Outputs cty.Value // as they were when it became ready

	stop  context.CancelFunc
	ready chan struct{} // closed when it is ready
	over  chan struct{} // closed when it has ended, or its process has

	mu      sync.Mutex
	failure error
}

// Over is closed when the block has ended; Failure says why.
func (b *Block) Over() <-chan struct{} { return b.over }

// Failure is why the block has ended.
func (b *Block) Failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// watch follows the block's events until it is over. Place says where a setting of it is, or nothing.
func (b *Block) watch(ctx context.Context, report func(Report), place func(cty.Path) string) {
	defer close(b.over)
	once, ready := sync.OnceFunc(func() { close(b.ready) }), false
	failure := fmt.Errorf("%s has ended: it has nothing more to do", b.Addr)
	err := b.Plugin.Watch(ctx, 0, func(e event.Event) {
		switch body := e.Body.(type) {
		case event.PhaseChange:
			switch body.Phase {
			case sdk.Ready:
				ready = true
				once()
			case sdk.Failed:
				message := body.Message
				if at := place(body.Path); at != "" {
					message = at + ": " + message
				}
				failure = &sdk.Error{Summary: fmt.Sprintf("%s failed: %s", b.Addr, message), Remedy: body.Remedy}
			default:
			}
			if body.Message != "" && body.Phase != sdk.Failed {
				report(Report{b.Addr, "phase", string(body.Phase) + ": " + body.Message, ready})
			}
		case event.LogLine:
			report(Report{b.Addr, body.Level, body.Message, ready})
		}
	})
	if err != nil && ctx.Err() == nil {
		failure = err
	}
	b.mu.Lock()
	b.failure = failure
	b.mu.Unlock()
}
