package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
)

var _ inference.Sleeper = (*Server)(nil)

// sleeps says whether a server gives its GPU's memory back when it is told to sleep. Without a GPU vLLM answers well and does nothing.
func (o offers) sleeps(c Config) bool {
	return c.EnableSleepMode && !o.lacks("/sleep") && !o.lacks("/wake_up") && o.Device != "cpu"
}

// Parts of a server's memory, by vLLM's tags.
const (
	weightsPart = "weights"
	cachePart   = "kv_cache"
)

// sleep makes the server give its memory back. Requests that the gateway kept in flight are frozen and computed anew after wake-up.
func (c *client) sleep(ctx context.Context, level inference.SleepLevel) error {
	query := url.Values{"level": {strconv.Itoa(int(level))}, "mode": {"keep"}}
	if err := c.post(ctx, "/sleep?"+query.Encode(), nil, nil); err != nil {
		return fmt.Errorf("put the server to sleep: %w", err)
	}
	return nil
}

// wake takes back one part of the memory.
func (c *client) wake(ctx context.Context, part string) error {
	if err := c.post(ctx, "/wake_up?"+url.Values{"tags": {part}}.Encode(), nil, nil); err != nil {
		return fmt.Errorf("wake the server's %s: %w", part, err)
	}
	return nil
}

// sleeping asks whether the server sleeps or is paused, and takes "no such route" for no.
func (c *client) sleeping(ctx context.Context) (bool, error) {
	var out struct {
		Sleeping bool `json:"is_sleeping"`
	}
	err := c.get(ctx, "/is_sleeping", &out)
	if status := (*statusError)(nil); errors.As(err, &status) && status.Status == 404 {
		return false, nil
	}
	return out.Sleeping, err
}

// Sleep implements inference.Sleeper: every replica gives its memory back. One that is being started is waited for; from now on one
// that ends is started again only when the others wake, because its memory is lent.
func (s *Server) Sleep(ctx context.Context, level inference.SleepLevel) error {
	if !s.req.Config.EnableSleepMode {
		return &sdk.Error{Summary: "this server was started without enable_sleep_mode", Remedy: "set enable_sleep_mode = true in the inference block"}
	}
	s.setAsleep(true)
	live, err := s.awaitSettled(ctx)
	if err != nil {
		return err
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	group := new(errgroup.Group) // not cancelled by the first failure: those that sleep are woken together
	for _, t := range live {
		group.Go(func() error { return t.sleep(ctx, s.req.Config, level) })
	}
	return group.Wait()
}

func (t target) sleep(ctx context.Context, c Config, level inference.SleepLevel) error {
	if !t.offers.sleeps(c) {
		return &sdk.Error{Summary: fmt.Sprintf("replica %s cannot sleep", t.replica.id), Detail: "device " + t.offers.Device + ", vLLM " + t.offers.Version,
			Remedy: "vLLM sleeps on a GPU only; set colocated = \"share\" in the sync block"}
	}
	begun := time.Now()
	t.replica.setNap(level) // before it is asked: the answer may be lost
	if err := t.client.sleep(ctx, level); err != nil {
		return fmt.Errorf("replica %s: %w", t.replica.id, err)
	}
	t.replica.server.host.Log("debug", fmt.Sprintf("replica %s sleeps at level %d after %s", t.replica.id, level, time.Since(begun).Round(time.Millisecond)))
	return nil
}

// Wake implements inference.Sleeper: what sleeps serves again what it served. Where that cannot be told from what the server holds, or
// waking fails, it is started again.
func (s *Server) Wake(ctx context.Context) error {
	s.setAsleep(false)
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	var list []target
	for _, r := range s.replicas {
		if r.live && r.nap != 0 {
			list = append(list, target{r, r.client, r.offers})
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
	restore := func(context.Context, target) error { return nil }
	if t.replica.napLevel() == inference.SleepDrop {
		if w.Path == "" {
			return fmt.Errorf("its weights were dropped, and those of version %d lie in no file", w.Version)
		}
		w.Transport = "reload"
		load, err := t.replica.server.loader(w)
		if err != nil {
			return err
		}
		restore = load
	}
	return waking(restore)(ctx, t)
}

// waking is a load into a server that may sleep: its memory comes back for the weights first, and for the rest when they are
// loaded. Until then nothing of it may be resumed, so the load neither pauses nor resumes.
func waking(load load) load {
	return func(ctx context.Context, t target) error {
		if t.replica.napLevel() == 0 {
			return load(ctx, t)
		}
		begun := time.Now()
		if err := t.client.wake(ctx, weightsPart); err != nil {
			return &wakeError{err}
		}
		up := time.Now()
		asleep := t
		asleep.offers.Barred = []string{"/pause"}
		if err := load(ctx, asleep); err != nil {
			return err
		}
		loaded := time.Now()
		if err := t.client.wake(ctx, cachePart); err != nil {
			return &wakeError{err}
		}
		t.replica.setNap(0)
		t.replica.server.host.Log("debug", fmt.Sprintf("replica %s is awake: weights after %s, loaded in %s, KV cache after %s", t.replica.id,
			up.Sub(begun).Round(time.Millisecond), loaded.Sub(up).Round(time.Millisecond), time.Since(loaded).Round(time.Millisecond)))
		return nil
	}
}

// wakeError says that a server did not get its memory back. There is no use in trying again with this one: what it holds is lost.
type wakeError struct{ err error }

func (e *wakeError) Error() string { return e.err.Error() }
func (e *wakeError) Unwrap() error { return e.err }

// replace has the server started again and returns when the host has been told where the next one will be, so that whoever
// tries again finds that one.
func (r *replica) replace(ctx context.Context) error {
	s := r.server
	s.mu.Lock()
	old := ""
	if r.client != nil {
		old = r.client.base
	}
	r.live = false // from now on it is waited for
	s.mu.Unlock()
	r.askRestart()
	ctx, cancel := context.WithTimeout(ctx, 2*(stopGrace+stopGrace))
	defer cancel()
	for {
		s.mu.Lock()
		told := s.told[r.id]
		s.mu.Unlock()
		if told != old {
			return nil
		}
		if err := pause(ctx, pollEvery/10); err != nil {
			return fmt.Errorf("replica %s: wait for the end of a server that did not wake: %w", r.id, err)
		}
	}
}

// rouse wakes a server that was taken over asleep: the life that put it to sleep has died. Which weights it holds nobody knows, so
// it goes on only where the current ones can be loaded before anything is asked of it.
func (r *replica) rouse(ctx context.Context, c *client) error {
	s := r.server
	ctx, cancel := context.WithTimeout(ctx, s.limits().UpdateTimeout)
	defer cancel()
	if !s.req.Config.EnableSleepMode {
		return nil
	}
	if asleep, err := c.sleeping(ctx); err != nil || !asleep {
		return nil //nolint:nilerr // one that does not answer is looked at by awaitAnswer
	}
	if err := r.wakeUnknown(ctx, c); err != nil {
		s.host.Log("warn", fmt.Sprintf("replica %s was found asleep and is started again: %v", r.id, err))
		return errAsked
	}
	return nil
}

func (r *replica) wakeUnknown(ctx context.Context, c *client) error {
	s := r.server
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current.Path == "" {
		return fmt.Errorf("it may have dropped its weights, and those of version %d lie in no file", current.Version)
	}
	o, err := c.probe(ctx)
	if err != nil {
		return err
	}
	current.Transport = "reload"
	load, err := s.loader(current)
	if err != nil {
		return err
	}
	if err := c.post(ctx, "/wake_up", nil, nil); err != nil {
		return err
	}
	return load(ctx, target{r, c, o})
}

func (s *Server) setAsleep(asleep bool) {
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
	s := r.server
	for {
		s.mu.Lock()
		awake := s.awake
		r.parked = awake != nil
		s.mu.Unlock()
		if awake == nil {
			return nil
		}
		s.host.Phase(sdk.Loading, fmt.Sprintf("replica %s is started again when the trainer has done its step", r.id))
		select {
		case <-awake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitSettled waits until every replica answers or waits to be started, and returns those that answer.
func (s *Server) awaitSettled(ctx context.Context) ([]target, error) {
	for {
		var live []target
		starting := ""
		s.mu.Lock()
		for _, r := range s.replicas {
			switch {
			case r.live:
				live = append(live, target{r, r.client, r.offers})
			case !r.parked:
				starting = r.id
			}
		}
		s.mu.Unlock()
		if starting == "" {
			return live, nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for replica %s, which is being started, before it can sleep: %w", starting, err)
		}
	}
}

func (r *replica) setNap(level inference.SleepLevel) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.nap = level
}

func (r *replica) napLevel() inference.SleepLevel {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.nap
}
