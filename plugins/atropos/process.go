package atropos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// process is one process of the environment.
type process struct {
	*running
	team  *team
	index int
	dir   string

	// Owned by the goroutine of live.
	settings     settings
	registration trajectory.Registered
	last         event // of those that say why it ended
	up           bool
	made         bool  // a group
	known        bool  // a poll has told at
	at           int64 // step of the trainer

	evaluating int64 // policy version when the evaluation that is under way began
}

// drainShare is how much of the grace period an environment gets to send what it has scored.
const drainShare = 0.4

// live runs the process until the context ends, or until it exits, which is an error.
func (p *process) live(ctx context.Context) error {
	program, events, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer p.leave(ctx)
	defer func() {
		grace := time.Duration(float64(p.host.Grace()) * drainShare)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.host.Grace())
		defer cancel()
		if err := program.Stop(stop, grace); err != nil {
			p.host.Log("error", err.Error())
		}
	}()
	p.team.started(p.index, program.Handle())

	lines := make(chan event, 64)
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan error, 1)
	go func() {
		defer close(lines)
		followed <- tail.Follow(following, events, tail.Options{Trim: maxEvents, Done: program.Done()}, func(raw []byte) {
			var e event
			if json.Unmarshal(raw, &e) == nil {
				select {
				case lines <- e:
				case <-following.Done():
				}
			}
		})
	}()
	defer func() {
		cancel()
		if err := <-followed; err != nil && !errors.Is(err, context.Canceled) {
			p.host.Log("warn", err.Error())
		}
	}()
	return p.watch(ctx, program, lines)
}

// api speaks with the trajectory API for the process: a request at a time, far between.
func (p *process) api() (*trajectory.Client, error) {
	once := &http.Client{Transport: trajectory.Transport(p.endpoints.Trajectories, "",
		&http.Transport{DisableKeepAlives: true})}
	return trajectory.New(p.endpoints.Trajectories, trajectory.WithHTTPClient(once))
}

// note remembers under which id the process is registered.
func (p *process) note(id *int64) {
	if id == nil {
		return
	}
	api, err := p.api()
	if err == nil {
		err = p.registration.Keep(api, int(*id))
	}
	if err != nil {
		p.host.Log("warn", err.Error())
	}
}

// leave says for a process that has ended that its weight and minimum no longer count.
func (p *process) leave(ctx context.Context) {
	if api, err := p.api(); err == nil {
		p.registration.Leave(ctx, api)
	}
}

// start writes the settings and starts the program.
func (p *process) start(ctx context.Context) (*proc.Program, string, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("make a directory for the environment: %w", err)
	}
	p.settings = makeSettings(p.req.Config, p.endpoints, p.name, p.dir)
	config, events, err := writeSettings(p.settings, p.dir)
	if err != nil {
		return nil, "", err
	}
	if err := tail.SetAside(filepath.Join(p.req.Dir, "environment-"+strconv.Itoa(p.index)+".log")); err != nil {
		p.host.Log("warn", err.Error())
	}
	p.registration.File = filepath.Join(p.dir, "registered.json")
	p.leave(ctx) // one of a life before this one, which was killed with it
	p.host.Phase(sdk.Starting, "importing the environment")
	program, err := proc.Start(ctx, proc.Spec{
		Name: "environment-" + strconv.Itoa(
			p.index,
		), Argv: p.argv(events, config, "serve"), Env: p.environ(), Dir: p.folder, LogDir: p.req.Dir,
	})
	if err != nil {
		return nil, "", &sdk.Error{
			Summary: "the environment could not be started",
			Err:     err,
			Remedy:  "runtime { python = … } must name an interpreter that can be run",
		}
	}
	return program, events, nil
}

// writeSettings writes the settings into a directory and names an empty file for events beside them.
func writeSettings(s settings, dir string) (config, events string, err error) {
	data, err := s.encode()
	if err != nil {
		return "", "", err
	}
	config, events = filepath.Join(dir, "config.yaml"), filepath.Join(dir, "events.jsonl")
	if err := regular.WriteFile(config, data); err != nil { // it holds tokens
		return "", "", fmt.Errorf("write the environment's settings: %w", err)
	}
	if err := regular.WriteFile(events, nil); err != nil {
		return "", "", fmt.Errorf("make the environment's event file: %w", err)
	}
	return config, events, nil
}

// watch takes the events until the end of the process or of the context.
func (p *process) watch(ctx context.Context, program *proc.Program, lines <-chan event) error {
	patience := p.req.Config.StartTimeout // of the health block
	if patience <= 0 {
		patience = math.MaxInt64 // without an engine there is none
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			p.host.Phase(sdk.Draining, "sending what has been scored")
			return ctx.Err()
		case e, ok := <-lines:
			if !ok {
				<-program.Done()
				return p.ended(program)
			}
			if err := p.take(ctx, e); err != nil {
				return err
			}
			if p.up {
				limit.Reset(p.req.Config.Silence)
			}
		case <-limit.C:
			return p.silent(program)
		}
	}
}

// ended explains why the process ended.
func (p *process) ended(program *proc.Program) error {
	if err := p.explainSettings(); err != nil {
		return err
	}
	return diagnose(program.Err(), program.Tail(logTail))
}

const logTail = 300

// maxEvents is at how many bytes the file of events, which holds whole samples, starts again.
const maxEvents = 16 << 20

// silent explains a process that says nothing any more, or that never came up.
func (p *process) silent(program *proc.Program) error {
	if !p.up {
		return &sdk.Error{
			Summary: fmt.Sprintf(
				"the environment did not come up within start_timeout = %s",
				p.req.Config.StartTimeout,
			), Detail: lastLines(program.Tail(logTail), 10),
			Remedy: "its imports or its setup() take longer (data sets are downloaded there): raise health { start_timeout }, " +
				"or fill the cache of data sets beforehand",
		}
	}
	return &sdk.Error{
		Summary: fmt.Sprintf(
			"the environment has not polled the trajectory API for %s",
			p.req.Config.Silence,
		), Detail: lastLines(program.Tail(logTail), 10),
		Remedy: "a call in its code blocks the event loop (a subprocess, a lock, time.sleep); make it asynchronous, or " +
			"raise silence",
	}
}

// evaluateAndTell evaluates and reports the numbers as metrics.
func (r *running) evaluateAndTell(ctx context.Context, when string) error {
	r.host.Phase(sdk.Loading, "evaluating "+when+" training")
	found, version, err := r.evaluate(ctx)
	if err != nil {
		return err
	}
	named := make(map[string]float64, len(found)+1)
	for k, v := range found {
		named["eval/"+strings.TrimPrefix(k, "eval/")] = v
	}
	named["eval/policy_version"] = float64(version)
	r.host.Metrics(version, named)
	r.host.Log("info", fmt.Sprintf("evaluation %s training, policy version %d: %s", when, version, text(found)))
	return nil
}

// Evaluate runs the environment's own evaluation once, in a process beside those that roll out. Atroposlib has no way
// to limit how much is evaluated, so limit is left to the environment's settings. The version is the one that was
// served from start to end; when it changed meanwhile the numbers belong to no version, which is an error.
func (e *Environment) Evaluate(ctx context.Context, _ int) (map[string]float64, int64, error) {
	e.mu.Lock()
	r := e.run
	e.mu.Unlock()
	if r == nil {
		return nil, 0, errors.New("evaluate: the environment has not started yet")
	}
	return r.evaluate(ctx)
}
