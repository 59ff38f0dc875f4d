package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// ReplayOptions are the flags of `recipe trajectories replay`.
type ReplayOptions struct {
	Target                // the server that the trainer polls
	Loop    int           // how often to go through the file; 0 means once
	Every   time.Duration // pause between groups; 0 posts as fast as the server takes them
	KeepEnv bool          // keep env_id; otherwise the groups are anonymous, since the environments do not exist here
}

// Replay feeds recorded groups (JSON Lines, as export writes them) to a trajectory API, so that a trainer can be run
// and debugged without inference. The server's bounds hold it back when the trainer is slower.
func Replay(ctx context.Context, o ReplayOptions, in io.ReadSeeker, out io.Writer) error {
	if o.URL == "" {
		return errors.New(
			"replay needs the URL of the trajectory API that the trainer polls: start one with `recipe run-api`",
		)
	}
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	groups := 0
	var sampled versions
	for range max(1, o.Loop) {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("going back to the start of the recording: %w", err)
		}
		lines := bufio.NewReaderSize(in, 1<<20)
		for n := 1; ; n++ {
			line, err := bounded.Line(lines, s.most)
			if len(bytes.TrimSpace(line)) > 0 {
				if err := s.replay(ctx, o, line); err != nil {
					return fmt.Errorf("line %d of the recording: %w", n, err)
				}
				groups++
				sampled.add(line)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("reading the recording: %w", err)
			}
		}
	}
	_, err = fmt.Fprintf(out, "%d groups replayed%s\n", groups, sampled.text())
	return err
}

// versions is the range of policy versions that sampled groups.
type versions struct {
	known       bool
	first, last int64
}

func (v *versions) add(line []byte) {
	var g struct {
		Version *trajectory.Versions `json:"policy_version"`
	}
	if json.Unmarshal(line, &g) != nil || g.Version == nil {
		return
	}
	if !v.known {
		v.known, v.first, v.last = true, g.Version.Min, g.Version.Max
	}
	v.first, v.last = min(v.first, g.Version.Min), max(v.last, g.Version.Max)
}

// text is the end of a sentence: how old the groups are for the trainer.
func (v *versions) text() string {
	if !v.known {
		return ""
	}
	return fmt.Sprintf(", of policy versions %d to %d", v.first, v.last)
}

func (s *source) replay(ctx context.Context, o ReplayOptions, line []byte) error {
	if !o.KeepEnv {
		var g map[string]json.RawMessage
		if err := json.Unmarshal(line, &g); err != nil {
			return fmt.Errorf("expected a group as JSON: %w", err)
		}
		delete(g, "env_id")
		var err error
		if line, err = json.Marshal(g); err != nil {
			return err
		}
	}
	reply, err := s.send(ctx, "POST", "/scored_data", bytes.NewReader(line))
	if err != nil {
		return err
	}
	_ = reply.Close()
	if o.Every <= 0 {
		return nil
	}
	t := time.NewTimer(o.Every)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
