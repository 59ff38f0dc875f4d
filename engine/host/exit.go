package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// exitGrace is how long a process may take to exit on request before it is killed.
const exitGrace = 15 * time.Second

// Exit ends the plugin process: it is asked to exit, killed when it does not, and its remaining programs are ended too.
// If its block still runs, it is stopped first, within the SDK's own grace; for another grace, call Stop before. When
// the context ends, the process is killed at once. Exit returns when nothing is left, and removes the record.
func (p *Plugin) Exit(ctx context.Context) error {
	// Shutdown of go-plugin. A suspended process answers nothing, so it has its own goroutine; the kill below frees it.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = p.connection.Close()
	}()
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-p.Exited():
	case <-timer.C:
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*killTimeout)
	defer cancel()
	err := p.Sweep(end)
	<-closed
	return err
}

// Sweep ends the process at once, if it still runs, with everything that it has started, and removes the record. It
// cleans up after a plugin that has died.
func (p *Plugin) Sweep(ctx context.Context) error {
	err := p.process.Kill(ctx)
	if err == nil {
		err = p.runner.Sweep(ctx, p.process.Identity(), LastHandle(p.dir), nil)
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", p.record.Block, err)
	}
	p.Release()
	return p.record.remove(p.dir)
}

// Release closes the connection. The process continues to run: a later engine finds it with Reattach.
func (p *Plugin) Release() {
	_ = p.connection.Conn.Close()
	p.process.Release()
}
