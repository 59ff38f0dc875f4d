package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// Reporter reads the Report of one sandbox.
type Reporter struct{ read, write *os.File }

// NewReporter makes one. File goes to the sandbox as its descriptor 3.
func NewReporter() (*Reporter, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for a sandbox: %w", err)
	}
	return &Reporter{read, write}, nil
}

// File is what the sandbox writes to.
func (r *Reporter) File() *os.File { return r.write }

// Close closes both ends.
func (r *Reporter) Close() { _, _ = r.read.Close(), r.write.Close() }

// ErrNoReport reports that the sandbox has ended without a report: it was killed, or could not be made.
var ErrNoReport = errors.New("the sandbox ended without a report")

// Report describes a sandbox that has ended.
func (r *Reporter) Report() (*inside.Report, error) {
	if err := r.write.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return nil, err
	}
	if err := r.read.SetReadDeadline(time.Now().Add(reportWithin)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r.read, mostReport))
	var report inside.Report
	if err != nil || json.Unmarshal(data, &report) != nil {
		return nil, ErrNoReport
	}
	return &report, nil
}

const (
	reportWithin = 5 * time.Second
	mostReport   = 64 << 10
)

// Run runs a sandbox that does little, such as a check, to its end.
func (s *Sandbox) Run(ctx context.Context, spec Spec, env ...string) (*inside.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	argv, err := s.Command(spec)
	if err != nil {
		return nil, err
	}
	reporter, err := NewReporter()
	if err != nil {
		return nil, err
	}
	defer reporter.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var said strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = env, &said, &said, []*os.File{reporter.File()}
	cmd.WaitDelay = time.Second
	ran := cmd.Run()
	report, err := reporter.Report()
	if err != nil {
		if text := strings.TrimSpace(said.String()); text != "" {
			return nil, errors.New(text)
		}
		return nil, errors.Join(ctx.Err(), ran, err)
	}
	return report, nil
}

// checkWithin is long for machines whose processors others use.
const checkWithin = time.Minute
