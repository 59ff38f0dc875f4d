package run

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// Healed is a file of the run that was deleted or changed by another program while the engine had it open, and that the
// engine has written again.
type Healed struct {
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
}

// healedLimit bounds the list of what was healed: only the newest are kept.
const healedLimit = 10

type healing struct {
	mu     sync.Mutex
	list   []Healed
	failed string // the newest error, which is reported once
}

// Heal writes the record and the newest file of the event log again when they are no longer as the engine wrote them.
// It does nothing in a directory that is no longer this run's: one that was moved, or removed as a whole.
func (e *Engine) Heal() {
	e.healing.mu.Lock()
	defer e.healing.mu.Unlock()
	if !e.lock.Holds(e.opts.Dir) {
		return
	}
	restored, err := e.log.Restore()
	if restored {
		e.healed("the newest file of the event log was deleted or replaced by another program; it was restored. Older " +
			"files of the log that were deleted are lost")
	}
	why, serr := e.store.Heal()
	if why != "" {
		e.healed(fmt.Sprintf("the run's record was changed by another program (%s); the engine has rewritten it", why))
	}
	if err == nil {
		err = serr
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != e.healing.failed {
		fmt.Fprintf(os.Stderr, "recipe: files of the run were changed by another program and could not be written again: "+
			"%s. The engine tries again every second\n", text)
	}
	e.healing.failed = text
}

func (e *Engine) healed(message string) {
	h := &e.healing
	h.list = append(h.list, Healed{e.now().UTC(), message})
	h.list = h.list[max(0, len(h.list)-healedLimit):]
	e.append(event.Event{Type: event.Notice, Level: "warn", Message: message})
}

// Healed lists what this engine has written again, newest last.
func (e *Engine) Healed() []Healed {
	e.healing.mu.Lock()
	defer e.healing.mu.Unlock()
	return append([]Healed(nil), e.healing.list...)
}
