package run

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// lateAnswer is after how long without an answer to a health check a block is shown as silent.
const lateAnswer = 4 * time.Second

func (at *attempt) lateAfter() time.Duration { return min(lateAnswer, at.health.Timeout/2) }

// late reports that the process does not answer for now: what it reported last is no news.
func (w *watcher) late() {
	if w.silent || w.ordered != nil {
		return
	}
	w.silent = true
	w.mention(event.Silent, fmt.Sprintf("its plugin process %d has not answered a health check for %s", w.proc.PID(),
		w.attempt.lateAfter()))
}

func (w *watcher) answered(err error) {
	if err == nil && w.silent {
		w.silent = false
		w.mention(event.Answers, "")
	}
}

func (w *watcher) mention(what event.Type, message string) {
	w.attempt.e.append(event.Event{Type: what, Address: w.attempt.block.String(), BlockAttempt: w.attempt.number,
		Message: message})
}
