package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Sleep makes every replica release its memory. It waits for replicas that are being started; from now on one that ends
// is started again only when the others wake, because the trainer uses its memory.
func (s *Supervisor) Sleep(ctx context.Context, level inference.SleepLevel) error {
	if !s.spec.SleepMode {
		setting := cmp.Or(s.spec.SleepSetting, "enable_sleep_mode")
		return &sdk.Error{Summary: "this server was started without " + setting,
			Remedy: "set " + setting + " = true in the inference block"}
	}
	s.setAsleep(true)
	live, err := s.awaitSettled(ctx)
	if err != nil {
		return err
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	group := new(errgroup.Group) // not canceled by the first failure: those that sleep are woken together
	for _, t := range live {
		group.Go(func() error { return t.sleep(ctx, level) })
	}
	return group.Wait()
}

func (t target) sleep(ctx context.Context, level inference.SleepLevel) error {
	sleeper, title := asSleeper(t.client), t.replica.s.spec.Title
	if sleeper == nil || !t.facts.Sleeps {
		return &sdk.Error{Summary: fmt.Sprintf("replica %s cannot sleep", t.replica.id),
			Detail: "device " + t.facts.Device + ", " + title + " " + t.facts.Version,
			Remedy: title + " sleeps on a GPU only; set colocated = \"share\" in the sync block"}
	}
	begun := time.Now()
	t.replica.setSleep(level) // before it is asked: the answer may be lost
	if err := sleeper.Sleep(ctx, level); err != nil {
		return fmt.Errorf("replica %s: %w", t.replica.id, err)
	}
	t.replica.s.host.Log("debug", fmt.Sprintf("replica %s sleeps at level %d after %s", t.replica.id, level, since(begun)))
	return nil
}

func asSleeper(c Client) Sleeper {
	s, _ := c.(Sleeper)
	return s
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(time.Millisecond) }

// Wake makes replicas that sleep serve again what they served. One whose weights are not known, or that fails to wake,
// is started again.
func (s *Supervisor) Wake(ctx context.Context) error {
	s.setAsleep(false)
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	var list []target
	for _, r := range s.replicas {
		if r.live && r.asleep != 0 {
			list = append(list, target{r, r.client, r.facts})
		}
	}
	s.mu.Unlock()
	group := new(errgroup.Group)
	for _, t := range list {
		group.Go(func() error {
			if err := t.wakeAs(ctx, current); err != nil {
				s.host.Log("error", fmt.Sprintf("replica %s is started again, because it did not wake: %v", t.replica.id, err))
				return t.replica.replace(ctx)
			}
			return nil
		})
	}
	return group.Wait()
}

// wakeAs wakes one server with the weights of a version.
func (t target) wakeAs(ctx context.Context, w sdk.Weights) error {
	if t.replica.sleepLevel() != inference.SleepDrop {
		return t.wakeAndLoad(ctx, nil)
	}
	if w.Path == "" {
		return fmt.Errorf("the weights of version %d were released, and no checkpoint file contains them", w.Version)
	}
	w.Transport = transport.Reload
	if err := t.replica.s.spec.accepts(w); err != nil {
		return err
	}
	return t.wakeAndLoad(ctx, &w)
}

// wakeAndLoad loads weights, if any, into a server that may sleep: its memory comes back for the weights first, and
// for the rest when they are loaded. Until then nothing of it may be resumed.
func (t target) wakeAndLoad(ctx context.Context, w *sdk.Weights) error {
	load := func(asleep bool) error {
		if w == nil {
			return nil
		}
		return t.load(ctx, *w, asleep)
	}
	sleeper := asSleeper(t.client)
	if sleeper == nil || t.replica.sleepLevel() == 0 {
		return load(false)
	}
	begun := time.Now()
	if err := sleeper.Wake(ctx, Weights); err != nil {
		return &wakeError{err}
	}
	up := time.Now()
	if err := load(true); err != nil {
		return err
	}
	loaded := time.Now()
	if err := sleeper.Wake(ctx, KVCache); err != nil {
		return &wakeError{err}
	}
	t.replica.setSleep(0)
	t.replica.s.host.Log("debug", fmt.Sprintf("replica %s is awake: weights after %s, loaded in %s, KV cache after %s",
		t.replica.id, up.Sub(begun).Round(time.Millisecond), loaded.Sub(up).Round(time.Millisecond), since(loaded)))
	return nil
}

// wakeError reports that a server could not acquire its memory again. A retry does not help: its content is lost.
type wakeError struct{ err error }

func (e *wakeError) Error() string { return e.err.Error() }
func (e *wakeError) Unwrap() error { return e.err }

// replace has the server started again and returns when the host knows the address of the next one, so that a retry
// finds that one.
func (r *replica) replace(ctx context.Context) error {
	s := r.s
	s.mu.Lock()
	old := ""
	if r.client != nil {
		old = r.address.URL()
	}
	r.live = false // from now on it is waited for
	s.mu.Unlock()
	r.askRestart()
	ctx, cancel := context.WithTimeout(ctx, 2*(stopGrace+stopGrace))
	defer cancel()
	for {
		s.mu.Lock()
		announced := s.announced[r.id]
		s.mu.Unlock()
		if announced != old {
			return nil
		}
		if err := Pause(ctx, pollEvery/10); err != nil {
			return fmt.Errorf("replica %s: wait for the end of a server that did not wake: %w", r.id, err)
		}
	}
}

// wakeAdopted wakes a server that was adopted asleep: the attempt that put it to sleep has died. It is unknown which
// weights it holds, so it is used only where the current ones can be loaded before its first request.
func (r *replica) wakeAdopted(ctx context.Context, c Client) error {
	sleeper := asSleeper(c)
	if sleeper == nil || !r.s.spec.SleepMode {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.s.limit().Update)
	defer cancel()
	if asleep, err := sleeper.Asleep(ctx); err != nil || !asleep {
		return nil //nolint:nilerr // awaitReady handles one that does not answer
	}
	if err := r.wakeUnknown(ctx, c, sleeper); err != nil {
		r.s.host.Log("warn", fmt.Sprintf("replica %s was found asleep and is started again: %v", r.id, err))
		return errAsked
	}
	return nil
}

func (r *replica) wakeUnknown(ctx context.Context, c Client, sleeper Sleeper) error {
	s := r.s
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current.Path == "" {
		return fmt.Errorf("the weights of version %d may have been released, and no checkpoint file contains them",
			current.Version)
	}
	facts, err := c.Probe(ctx)
	if err != nil {
		return err
	}
	if err := sleeper.Wake(ctx, AllOfIt); err != nil {
		return err
	}
	return target{r, c, facts}.loadFiles(ctx, current, false)
}

func (s *Supervisor) setAsleep(asleep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case asleep && s.awake == nil:
		s.awake = make(chan struct{})
	case !asleep && s.awake != nil:
		close(s.awake)
		s.awake = nil
	}
}

// awaitAwake holds up the start of a server while the others sleep.
func (r *replica) awaitAwake(ctx context.Context) error {
	s := r.s
	for {
		s.mu.Lock()
		awake := s.awake
		r.waiting = awake != nil
		s.mu.Unlock()
		if awake == nil {
			return nil
		}
		s.host.Phase(sdk.Loading, fmt.Sprintf("replica %s is started again after the trainer's step", r.id))
		select {
		case <-awake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitSettled waits until every replica answers or waits to be started, and returns those that answer.
func (s *Supervisor) awaitSettled(ctx context.Context) ([]target, error) {
	for {
		var live []target
		starting := ""
		s.mu.Lock()
		for _, r := range s.replicas {
			switch {
			case r.live:
				live = append(live, target{r, r.client, r.facts})
			case !r.waiting:
				starting = r.id
			}
		}
		s.mu.Unlock()
		if starting == "" {
			return live, nil
		}
		if err := Pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for replica %s, which is being started, before it can sleep: %w", starting, err)
		}
	}
}

func (r *replica) setSleep(level inference.SleepLevel) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.asleep = level
}

func (r *replica) sleepLevel() inference.SleepLevel {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.asleep
}
