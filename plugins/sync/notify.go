package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// notifyTrajectories posts the version now served to the trajectory API. It measures and limits staleness by it,
// so it should know before the first sample of that version arrives; when it does not answer, this is retried later.
func (s *syncer) notifyTrajectories(ctx context.Context) {
	// Environments sample further ahead where answers go on: they are told at the start, and when that changes.
	keeps := s.config.InFlight == sdksync.Keep
	if s.trajectories == nil || s.notified == s.version.Load() && s.told == keeps {
		return
	}
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	version := s.version.Load()
	err := s.trajectories.UpdatePolicy(within, trajectory.PolicyUpdate{
		Version: version, MaxStaleness: s.config.MaxStaleness, InFlight: s.config.InFlight,
	})
	if err != nil && !s.unnotified { // it is tried again each second
		s.warn(ctx, "post the policy version to %s: %v", s.config.Trajectories.Address, err)
	}
	if s.unnotified = err != nil; !s.unnotified {
		s.notified, s.told = version, keeps
	}
}

// warn logs a warning, but not of what the stop of the block has broken off.
func (s *syncer) warn(ctx context.Context, format string, args ...any) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.host.Log("warn", fmt.Sprintf(format, args...))
	}
}

// notifyTrainer acknowledges, a few times if need be: the trainer waits for it.
func (s *syncer) notifyTrainer(ctx context.Context, done weightserver.Done) (err error) {
	for range 3 {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		err = s.trainer.Synced(one, done)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if s.pause(ctx, checkEvery/5) != nil {
			return ctx.Err()
		}
	}
	return err
}

// report emits one event an inference block.
func (s *syncer) report(u *update) {
	s.host.SetOutputs(outputs.Sync{Version: s.version.Load(), Transport: string(s.transport)})
	seconds := time.Since(u.started).Seconds()
	values := map[string]float64{"policy_version": float64(u.Version), "sync_seconds": seconds}
	for phase, took := range u.phases {
		values["sync_"+phase+"_seconds"] = took
	}
	for _, v := range s.servers {
		if err := u.failed[v]; err != nil {
			s.host.Log("error", fmt.Sprintf("%s does not serve policy version %d: %v", v.address, u.Version, err))
			v.trouble = strings.TrimSpace(err.Error())
			continue
		}
		v.trouble = ""
		if u.away[v] {
			continue
		}
		v.told = false
		values["sync_logprob_difference"] = max(values["sync_logprob_difference"], u.worst[v])
		s.host.Weights(sdk.WeightsInfo{
			Version: u.Version, Path: u.weights.Path, Format: u.weights.Format, Transport: u.weights.Transport,
			Inference: v.address,
			Seconds:   seconds, Phases: u.phases, MaxLogprobDifference: u.worst[v],
		})
	}
	s.host.Metrics(u.Step, values)
	if s.behind() {
		s.host.Phase(sdk.Degraded, "not every inference block serves the newest version")
	} else {
		s.host.Phase(sdk.Ready, "")
	}
}
