package vllm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// answerTimeout bounds one attempt at a first token; the first one compiles kernels on some machines.
const answerTimeout = 2 * time.Minute

// awaitAnswer waits until the server has produced a token. A server that is up but answers an error is given up at once when the
// error cannot go away.
func (r *replica) awaitAnswer(ctx context.Context, program *proc.Program, c *client) error {
	limit := r.server.limits().StartTimeout // of the health block; without an engine there is none
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, answerTimeout)
		err := c.get(attempt, "/health", nil) // cheap, and tells that the socket is open
		if err == nil {
			err = r.firstToken(attempt, c)
		}
		cancel()
		if err == nil {
			return nil
		}
		last = err
		select {
		case <-program.Done():
			return diagnose(program.Err(), program.Tail(logTail))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return &sdk.Error{
					Summary: fmt.Sprintf("vLLM did not answer within start_timeout = %s", limit), Detail: lastLines(program.Tail(logTail), 10), Err: last,
					Remedy: "a large model that is downloaded or compiled for the first time needs longer: raise health { start_timeout }; otherwise see the end of its log above",
				}
			}
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// logTail is how much of the log is searched for a known failure.
const logTail = 400

// firstToken makes sure that the policy has its name on the server, lets a paused server go on, and asks for one token.
func (r *replica) firstToken(ctx context.Context, c *client) error {
	paused, err := c.paused(ctx)
	if err != nil {
		return err
	}
	if paused { // whoever paused it has died
		if err := c.post(ctx, "/resume", nil, nil); err != nil {
			return err
		}
	}
	base := *c
	base.model = r.server.req.Config.baseName()
	return base.answer(ctx)
}

// install brings a server that answers to the current weights and makes it a live replica. No update can come in between.
func (r *replica) install(ctx context.Context, c *client, adopted bool) error {
	s := r.server
	ctx, cancel := context.WithTimeout(ctx, s.limits().UpdateTimeout)
	defer cancel()
	o, err := c.probe(ctx)
	if err != nil {
		return fmt.Errorf("ask vLLM what it offers: %w", err)
	}
	if s.extension != "" && !o.lacks("/collective_rpc") {
		if err := c.facts(ctx, &o); err != nil {
			s.host.Log("warn", fmt.Sprintf("replica %s: weights cannot reach it through memory: %v", r.id, err))
		}
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	r.offers = o
	s.mu.Unlock()

	t := target{r, c, o}
	if err := t.plainAdapter(ctx); err != nil {
		return err
	}
	// A server that was taken over may serve any version by now, so it gets the current one again.
	if current.Path != "" && (adopted || !s.bakes(current)) {
		current.Transport = "reload"
		load, err := s.loader(current)
		if err == nil {
			err = load(ctx, t)
		}
		if err != nil {
			return fmt.Errorf("load policy version %d into the restarted server: %w", current.Version, err)
		}
	}
	if err := c.answer(ctx); err != nil {
		return fmt.Errorf("the server fails with the weights of version %d: %w", current.Version, err)
	}
	s.mu.Lock()
	r.live, r.version = true, current.Version
	serves := fmt.Sprintf("policy version %d", current.Version)
	if !s.loadable() {
		r.version, serves = unknownVersion, fmt.Sprintf("waits for policy version %d, which is in no file", current.Version)
	}
	s.mu.Unlock()
	s.host.Log("info", fmt.Sprintf("replica %s: vLLM %s answers, %s, weights by %s", r.id, o.Version, serves, strings.Join(s.transports(o), ", ")))
	return nil
}

// unknownVersion is that of a server whose weights are not those of any policy version.
const unknownVersion = -1

// plainAdapter gives the policy's name to an adapter that changes nothing, where LoRA is on.
func (t target) plainAdapter(ctx context.Context) error {
	s := t.replica.server
	if !s.req.Config.EnableLora {
		return nil
	}
	dir := filepath.Join(s.req.Dir, "replica-"+t.replica.id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for the first adapter: %w", err)
	}
	return t.client.zeroAdapter(ctx, dir)
}

// watch returns when the server has ended, hangs, or has to be started again.
func (r *replica) watch(ctx context.Context, program *proc.Program, c *client) error {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	misses := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-program.Done():
			return diagnoseLater(program.Err(), program.Tail(logTail))
		case <-r.restart:
			return errAsked
		case <-ticker.C:
		}
		look, cancel := context.WithTimeout(ctx, healthTimeout)
		err := c.get(look, "/health", nil)
		cancel()
		if err == nil || ctx.Err() != nil {
			misses = 0
			continue
		}
		misses++
		var status *statusError
		if errors.As(err, &status) || misses >= healthMisses { // 503: the engine is dead, and vLLM says so itself
			return fmt.Errorf("vLLM is up but not healthy (%d looks in a row): %w", misses, err)
		}
	}
}

// hopeless says that starting again cannot help.
func hopeless(err error) bool {
	var e *sdk.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, s := range symptoms {
		if !s.passing && e.Summary == s.headline() {
			return true
		}
	}
	return errors.Is(err, fs.ErrNotExist)
}

func (r *replica) isLive() bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.live
}

// setProgram says that a server has been started, and returns what speaks to it.
func (r *replica) setProgram(h proc.Handle, port int) *client {
	r.server.mu.Lock()
	if r.next != port { // taken over from an earlier life
		r.client = r.newClient(port)
	}
	r.handle, r.next = h, 0
	c := r.client
	r.server.mu.Unlock()
	r.server.notify()
	return c
}

func (r *replica) setVersion(version int64) {
	r.server.mu.Lock()
	r.version = version
	r.server.mu.Unlock()
}

// down says that the server is gone, and where the next one will be.
func (r *replica) down() {
	r.server.mu.Lock()
	before, stays := r.client, r.stays
	r.live, r.handle, r.client, r.next, r.nap, r.stays = false, proc.Handle{}, nil, 0, 0, false
	if stays && before != nil {
		r.next, r.client = before.port, r.newClient(before.port)
	}
	r.server.mu.Unlock()
	if _, err := r.reserve(); err != nil {
		r.server.host.Log("warn", err.Error()) // the next start tries again and tells
	}
	r.server.notify()
}

// askRestart makes watch end the server, so that keep starts it again.
func (r *replica) askRestart() {
	select {
	case r.restart <- struct{}{}:
	default:
	}
}
