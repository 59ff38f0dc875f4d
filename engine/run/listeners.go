package run

import (
	"context"
	"os"
	"sync"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
)

// listeners are copies of the sockets on which blocks of this machine listen: their ports stay taken while the
// processes of the blocks are replaced.
type listeners struct {
	mu   sync.Mutex
	kept map[addr.Block]*listener.Kept
}

// listening is a process that offers its listening socket; *host.Plugin is one.
type listening interface {
	Listener(ctx context.Context) (*listener.Kept, error)
}

// file is the socket of a block, nil if none is kept.
func (l *listeners) file(a addr.Block) *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kept[a]; k != nil {
		return k.File
	}
	return nil
}

// keep takes the socket of a block that listens at an address. A plugin that does not offer its socket is no error: its
// tokens are changed at its next start.
func (l *listeners) keep(ctx context.Context, a addr.Block, proc Process, address string) {
	l.mu.Lock()
	old := l.kept[a]
	l.mu.Unlock()
	offers, ok := proc.(listening)
	if !ok || old != nil && old.Address == address {
		return
	}
	k, err := offers.Listener(ctx)
	if err == nil && k != nil && k.Address != address {
		_, k = k.Close(), nil
	}
	l.set(a, k)
}

// drop lets go of the socket of a block that is not started again: its clients must learn that nothing listens.
func (l *listeners) drop(a addr.Block) { l.set(a, nil) }

func (l *listeners) set(a addr.Block, k *listener.Kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.kept[a]; old != nil {
		_ = old.Close()
	}
	delete(l.kept, a)
	if k == nil {
		return
	}
	if l.kept == nil {
		l.kept = map[addr.Block]*listener.Kept{}
	}
	l.kept[a] = k
}

func (l *listeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a, k := range l.kept {
		_ = k.Close()
		delete(l.kept, a)
	}
}

// renewTokens changes the tokens of a block whose port was free for a time: any user of this machine could have
// listened there and received them. A block in a job has another machine each time, and is reached through agents.
func (s *supervisor) renewTokens(a addr.Block, meta decode.Meta) {
	rec := s.e.store.Block(a)
	if rec == nil || rec.Listen == "" || IsPlaced(meta) || s.e.listeners.file(a) != nil {
		return
	}
	s.e.note(a, func(rec *state.Block) { rec.Renewals, rec.Renewed = rec.Renewals+1, true })
}
