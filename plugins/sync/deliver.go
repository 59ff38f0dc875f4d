package sync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// With transport delta this block carries the stream of weights from the trainer to each inference block, on the
// connections that it has to both: those between machines are authenticated and encrypted by the run's agents.

// transferTries is how often a transfer is tried that fails although it does not get further.
const transferTries = 5

// deliver sends weights to the machine of an inference block, unless they are there. Requests are not held meanwhile.
func (s *syncer) deliver(ctx context.Context, v *server, w sdk.Weights) error {
	if w.Transport != transport.Delta {
		return nil
	}
	var h delta.Handles
	if err := json.Unmarshal([]byte(w.Handles), &h); err != nil {
		return fmt.Errorf("read the trainer's description of policy version %d: %w", w.Version, err)
	}
	held, err := v.client.Held(ctx, gateway.Transfer{Digest: h.Digest})
	if err != nil || held.Complete {
		return err
	}
	defer s.waitFor(v.address, "policy version %d to be sent to its machine", w.Version)()
	begun := time.Now()
	packed, err := s.trainer.Pack(ctx, weightserver.PackRequest{Digest: h.Digest, Base: held.Base})
	if err != nil {
		return err
	}
	err = s.transfer(ctx, v, gateway.Transfer{Digest: h.Digest, Stream: packed.Name, Bytes: packed.Bytes})
	if err != nil {
		return fmt.Errorf("send policy version %d to the machine of %s: %w", w.Version, v.address, err)
	}
	level := "debug"
	if held.Base == "" {
		level = "info" // the first, and one after a loss; the others are of each step
	}
	s.host.Log(level, fmt.Sprintf("policy version %d was sent to the machine of %s: %s", w.Version, v.address,
		describe(packed, time.Since(begun))))
	return nil
}

// describe describes what a transfer took.
func describe(p weightserver.Packed, took time.Duration) string {
	return fmt.Sprintf("%d bytes, %.2f %% of %d bytes of weights, of which %.2f %% have changed, in %.2f s", p.Bytes,
		percent(p.Bytes, p.Weights), p.Weights, percent(p.Changed, p.Weights), took.Seconds())
}

func percent(part, whole int64) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

// transfer sends a stream. After a cut it goes on with the byte at which it broke off.
func (s *syncer) transfer(ctx context.Context, v *server, t gateway.Transfer) error {
	for tries, furthest := 1, int64(-1); ; tries++ {
		held, err := v.client.Held(ctx, t)
		if err == nil {
			if held.Complete {
				return nil
			}
			if held.Received > furthest {
				tries, furthest = 1, held.Received
			}
			t.From = held.Received
			if err = s.send(ctx, v, t); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil || tries >= transferTries || errors.Is(err, weightclient.ErrRefused) {
			return err
		}
		s.host.Log("debug", fmt.Sprintf("the transfer of weights to %s broke off after byte %d of %d and is tried again: %v",
			v.address, t.From, t.Bytes, err))
		if err := sleepFor(ctx, checkEvery); err != nil {
			return err
		}
	}
}

// send sends what lacks of a stream.
func (s *syncer) send(ctx context.Context, v *server, t gateway.Transfer) error {
	if t.From == t.Bytes { // all of it is there, but it was not unpacked
		return v.client.Receive(ctx, t, bytes.NewReader(nil))
	}
	body, err := s.trainer.Stream(ctx, t.Stream, t.From)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	return v.client.Receive(ctx, t, body)
}

func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// deliverAll sends weights to the machines of all inference blocks, before anything is held. It fails when that fails
// for all of them; load tries single ones once more.
func (s *syncer) deliverAll(ctx context.Context, u *update) error {
	errs := make(map[*server]error, len(s.servers))
	s.each(s.servers, func(v *server) {
		err := s.deliver(ctx, v, u.weights)
		u.mu.Lock()
		defer u.mu.Unlock()
		if err != nil {
			errs[v] = err
		}
	})
	if len(errs) < len(s.servers) {
		return nil
	}
	return joined(errs)
}

// unshared says why weights cannot move by files in the directory of this block; empty: they can, or it is not decided
// by that. Trainer and inference are asked for a file that is there.
func (s *setup) unshared(ctx context.Context, c Config, dir string) (string, error) {
	if c.Transport != string(transport.Auto) {
		return "", nil
	}
	if chosen, _, err := c.choose(""); err != nil || !chosen.Files() {
		return "", nil //nolint:nilerr // choose reports it later
	}
	file, err := os.CreateTemp(dir, "shared-*")
	if err != nil {
		return "", fmt.Errorf("write a file to see who shares it: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Close(); err != nil {
		return "", err
	}
	asked := map[string]func(context.Context, string) (bool, error){c.Trainer.Address: s.trainer.Sees}
	for _, v := range s.servers {
		asked[v.address] = v.client.Sees
	}
	for address, sees := range asked {
		if shared, err := askSees(ctx, file.Name(), sees); err == nil && !shared {
			return fmt.Sprintf("the machine of %s does not see the files in %s", address, dir), nil
		}
	}
	return "", nil
}

// askSees asks a block, which may be starting again. One that does not answer is taken to see the files.
func askSees(ctx context.Context, path string, sees func(context.Context, string) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		shared, err := sees(ctx, path)
		remote := (*gateway.RemoteError)(nil)
		if err == nil || errors.Is(err, weightclient.ErrRefused) || errors.As(err, &remote) { // of an earlier version
			return shared, err
		}
		if sleepFor(ctx, checkEvery) != nil {
			return false, err
		}
	}
}
