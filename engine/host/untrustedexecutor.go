package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk/executor"
)

const whyReads = "used to log in to a cluster that it names, where credentials and jobs would go"

// allowReads asks about the files that an executor's body names.
func (c *Catalog) allowReads(x executor.Executor, recorded bool) error {
	r, ok := executor.As[executor.Reader](x)
	if !ok {
		return nil
	}
	reads := r.Reads()
	if len(reads) == 0 || slices.ContainsFunc(c.Kubeconfigs, func(own string) bool { return sameFile(own, reads[0]) }) {
		return nil
	}
	for _, path := range reads {
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		digest, err := trust.OfFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // using it says so
		}
		if err == nil {
			err = c.Trust.Allow(trust.Use{Path: path, Digest: digest, Why: whyReads, Recorded: recorded})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sameFile(a, b string) bool {
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// untrustedExecutor is an executor that must not be asked: it renders jobs and does nothing else.
type untrustedExecutor struct {
	executor.Executor
	err error
}

var (
	_ executor.Tester   = untrustedExecutor{}
	_ executor.Examiner = untrustedExecutor{}
)

func (w untrustedExecutor) Submit(context.Context, executor.Job) (executor.Handle, error) {
	return executor.Handle{}, w.err
}

func (w untrustedExecutor) Status(context.Context, []executor.Handle) ([]executor.Status, error) {
	return nil, w.err
}

func (w untrustedExecutor) Logs(context.Context, executor.Handle, io.Writer) error { return w.err }

func (w untrustedExecutor) Cancel(context.Context, executor.Handle, time.Duration) error {
	return w.err
}

func (w untrustedExecutor) List(context.Context, string) ([]executor.Handle, error) {
	return nil, w.err
}

// Test implements executor.Tester.
func (w untrustedExecutor) Test(context.Context, executor.Job) (string, error) { return "", w.err }

// Examine implements executor.Examiner.
func (w untrustedExecutor) Examine(context.Context) []executor.Check {
	remedy := "trust it"
	if r, ok := w.err.(interface{ Remedy() string }); ok {
		remedy = r.Remedy()
	}
	return []executor.Check{{Name: "cluster", Found: strings.TrimSpace(w.err.Error()), Remedy: remedy}}
}
