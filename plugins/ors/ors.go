// Package ors is `environment "ors"`: an environment behind a server of the Open Reward Standard, played over HTTP and
// server-sent events: sessions, prompts and tools.
package ors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
)

// Plugin defines `environment "ors"`.
func Plugin() *sdk.Definition {
	return environment.DefineEpisodes("ors", "An environment behind a server of the Open Reward Standard.", open,
		sdk.WithDoc("Plays any environment that a server of the Open Reward Standard (ORS) offers: each episode is a "+
			"session of one of its tasks, and the model calls the environment's tools. docs/environments/ors.md explains it."))
}

// world is the environment.
type world struct {
	config Config
	log    func(level, message string)
	server *envserver.Server
	client *client
	name   string              // of the environment at the server
	places *semaphore.Weighted // sessions at once; nil: no limit
	order  []int               // of the tasks
	images sync.Once           // the warning that the model reads none

	mu    sync.Mutex
	given int
}

var (
	_ environment.Episodic  = (*world)(nil)
	_ environment.Evaluable = (*world)(nil)
	_ environment.Closer    = (*world)(nil)
)

func open(ctx context.Context, setup environment.Setup[Config]) (*world, error) {
	c := setup.Config
	w := &world{config: c, log: setup.Log}
	if c.MaxSessions > 0 {
		w.places = semaphore.NewWeighted(c.MaxSessions)
	}
	var err error
	w.server, err = envserver.Open(ctx, envserver.Setup{Location: c.Location, Health: "/health", Block: setup.Block,
		Log: setup.Log, Handles: setup.SetHandle})
	if err != nil {
		return nil, err
	}
	w.client = &client{url: w.server.URL(), config: c,
		http: &http.Client{Transport: w.server.Transport(&http.Transport{MaxIdleConnsPerHost: 64,
			IdleConnTimeout: time.Minute})}}
	if err := w.learn(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// learn asks the server for its environments and the number of tasks.
func (w *world) learn(ctx context.Context) error {
	w.name = w.config.EnvName
	if w.name == "" {
		var names []string
		if err := w.client.ask(ctx, http.MethodGet, "/list_environments", "", nil, &names); err != nil || len(names) == 0 {
			return &sdk.Error{Summary: "the server does not list its environments", Err: err,
				Remedy: "set env_name, or correct base_url: it must name a server of the Open Reward Standard"}
		}
		w.name = names[0]
	}
	n, err := w.count(ctx, w.config.Split)
	if err != nil {
		return err
	}
	w.order = rand.New(rand.NewPCG(uint64(w.config.Seed), 1)).Perm(n)
	w.log("info", fmt.Sprintf("environment %s with %d tasks in split %q", w.name, n, w.config.Split))
	return nil
}

// count is the number of tasks of a split.
func (w *world) count(ctx context.Context, split string) (int, error) {
	var answer struct {
		N int `json:"num_tasks"`
	}
	err := w.client.ask(ctx, http.MethodPost, w.route("/num_tasks"), "", map[string]string{"split": split}, &answer)
	if err == nil && answer.N > 0 {
		return answer.N, nil
	}
	e := &sdk.Error{Summary: fmt.Sprintf("the environment %s gives no tasks of the split %q", w.name, split), Err: err,
		Remedy: "correct split, eval_split or env_name"}
	var splits []struct {
		Name string `json:"name"`
	}
	if w.client.ask(ctx, http.MethodGet, w.route("/splits"), "", nil, &splits) == nil {
		e.Detail = fmt.Sprintf("its splits are %+v", splits)
	}
	return 0, e
}

func (w *world) route(suffix string) string { return "/" + w.name + suffix }

// Close ends what was opened.
func (w *world) Close() error {
	w.client.http.CloseIdleConnections()
	return w.server.Close()
}

// closeWithin bounds how long a session that could not begin may take to end.
const closeWithin = 5 * time.Second

// place is one task of the environment.
type place struct {
	split string
	index int
}

// Next is the next task of the split; each comes once before any comes again.
func (w *world) Next(context.Context) (environment.Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := place{w.config.Split, w.order[w.given%len(w.order)]}
	w.given++
	return environment.Task{Data: p}, nil
}

// EvaluationTasks are those of eval_split.
func (w *world) EvaluationTasks(ctx context.Context) ([]environment.Task, error) {
	n, err := w.count(ctx, w.config.EvalSplit)
	if err != nil {
		return nil, err
	}
	tasks := make([]environment.Task, min(n, int(w.config.EvalTasks)))
	for i := range tasks {
		tasks[i].Data = place{w.config.EvalSplit, i}
	}
	return tasks, nil
}

// Begin creates a session of the task.
func (w *world) Begin(ctx context.Context, task environment.Task) (environment.Episode, []environment.Message, error) {
	p, ok := task.Data.(place)
	if !ok {
		return nil, nil, fmt.Errorf("the task holds %T, which is no task of this environment", task.Data)
	}
	if w.places != nil {
		if err := w.places.Acquire(ctx, 1); err != nil {
			return nil, nil, err
		}
	}
	s := &session{world: w}
	said, err := s.begin(ctx, p)
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		s.Close(closing)
		return nil, nil, w.server.Failed(err)
	}
	return s, said, nil
}

// create makes a session and returns its id.
func (w *world) create(ctx context.Context, p place) (string, error) {
	result, id, err := w.client.stream(ctx, "/create_session", "", map[string]any{})
	if err != nil {
		return "", err
	}
	var named struct {
		ID string `json:"sid"`
	}
	if json.Unmarshal([]byte(result), &named) == nil && named.ID != "" {
		id = named.ID
	}
	if id == "" {
		return "", errors.New("/create_session: the answer names no session")
	}
	body := map[string]any{"split": p.split, "index": p.index, "env_name": w.name}
	if w.config.ToolsetName != "" {
		body["toolset_name"] = w.config.ToolsetName
	}
	return id, w.client.ask(ctx, http.MethodPost, "/create", id, body, nil)
}
