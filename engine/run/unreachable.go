package run

import (
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
)

// unreachable reports whether a health check has failed because the block's machine cannot be reached. The block runs
// on there, so that counts for nothing, for as long as its agent looks for an engine; its cluster says when its job is
// over.
func (w *watcher) unreachable(err error) bool {
	var since time.Time
	if d, ok := w.proc.(host.Distant); ok && err != nil {
		since = d.Cut()
	}
	at := w.attempt
	patience := at.e.opts.Lease
	if patience == 0 {
		patience = DefaultLease
	}
	cut := !since.IsZero() && time.Since(since) < patience
	if cut != w.unreached {
		w.unreached = cut
		text := "its machine is reached again"
		if cut {
			text = fmt.Sprintf("its machine cannot be reached since %s; it is waited for up to %s",
				since.Format(time.TimeOnly), patience)
		}
		at.e.notice("warn", at.block.String()+": "+text)
		w.report.message(text)
	}
	return cut
}

// unasked is the error of a block that has stopped in order, although this engine has not asked it to.
func (w *watcher) unasked(message string) error {
	text := "it stopped by itself"
	if remote.Placed(w.attempt.e.opts.Dir.Block(w.attempt.block)) {
		text = "its cluster has asked its job to end, as for a time limit, for a job with a higher priority, or by " +
			"scancel; or the job's agent was killed"
	}
	if message != "" {
		text += ": " + message
	}
	return errors.New(text)
}
