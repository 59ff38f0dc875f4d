// Package openenv is `environment "openenv"`: an environment behind a server of OpenEnv, played over its web socket
// (reset, step, state).
package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
	"github.com/recipe-rl/recipe/sdk/kit/toolcall"
)

// Plugin defines `environment "openenv"`.
func Plugin() *sdk.Definition {
	return environment.DefineEpisodes("openenv", "An environment behind a server of OpenEnv.", open,
		sdk.WithDoc("Plays any environment that a server of OpenEnv offers, over its web socket: each episode is a session "+
			"of its own, and all episodes of a group are reset with the same seed. docs/environments/openenv.md explains it."))
}

// world is the environment.
type world struct {
	config  Config
	log     func(level, message string)
	server  *envserver.Server
	dialer  *dialer
	places  *places
	actions *actions
	tasks   *tasks
}

var (
	_ environment.Episodic  = (*world)(nil)
	_ environment.Evaluable = (*world)(nil)
	_ environment.Closer    = (*world)(nil)
)

func open(ctx context.Context, setup environment.Setup[Config]) (*world, error) {
	c := setup.Config
	w := &world{config: c, log: setup.Log, places: newPlaces(int(c.MaxConcurrentEnvs))}
	var err error
	if w.tasks, err = newTasks(c, setup.RecipeDir); err != nil {
		return nil, err
	}
	w.server, err = envserver.Open(ctx, envserver.Setup{Location: c.Location, Health: "/health", Block: setup.Block,
		Log: setup.Log, Handles: setup.SetHandle})
	if err != nil {
		return nil, err
	}
	w.dialer = &dialer{url: w.server.URL(), config: c, timeout: seconds(c.MessageTimeoutS),
		http: &http.Client{Transport: w.server.Transport(&http.Transport{MaxIdleConnsPerHost: 64,
			IdleConnTimeout: time.Minute})}}
	if err := w.learn(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// learn asks the server for the form of its actions.
func (w *world) learn(ctx context.Context) error {
	answer, err := w.dialer.call(ctx, http.MethodGet, "schema", nil)
	if err != nil {
		return &sdk.Error{Summary: "the server does not describe its actions", Err: err,
			Remedy: "base_url must name an OpenEnv server (0.3 or newer), which answers GET /schema"}
	}
	var s struct {
		Action json.RawMessage `json:"action"`
	}
	if err := json.Unmarshal(answer, &s); err != nil || len(s.Action) == 0 {
		return &sdk.Error{Summary: "the server's /schema has no action: " + brief(answer),
			Remedy: "base_url must name an OpenEnv server (0.3 or newer)"}
	}
	if w.actions, err = newActions(w.config, s.Action); err != nil {
		return err
	}
	w.log("info", "the model's answers are actions in the format "+w.actions.format)
	return nil
}

// Close ends what was opened.
func (w *world) Close() error {
	w.dialer.http.CloseIdleConnections()
	return w.server.Close()
}

// Next is the next task.
func (w *world) Next(context.Context) (environment.Task, error) { return w.tasks.next(), nil }

// EvaluationTasks are the held-out tasks.
func (w *world) EvaluationTasks(context.Context) ([]environment.Task, error) {
	return w.tasks.heldOut(), nil
}

const (
	capacityFirst = 100 * time.Millisecond // wait while the server is full; doubles up to capacityLast
	capacityLast  = 5 * time.Second
)

// Begin opens a session and resets it. While the server is full it waits.
func (w *world) Begin(ctx context.Context, task environment.Task) (environment.Episode, []environment.Message, error) {
	parameters, ok := task.Data.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("the task holds %T, which is no task of this environment", task.Data)
	}
	if err := w.places.take(ctx); err != nil {
		return nil, nil, err
	}
	e, said, err := w.begin(ctx, parameters)
	if err != nil {
		w.places.free()
		return nil, nil, w.failed(err)
	}
	return e, said, nil
}

func (w *world) begin(ctx context.Context, parameters map[string]any) (*episode, []environment.Message, error) {
	deadline := time.Now().Add(w.config.CapacityTimeout)
	for wait := capacityFirst; ; wait = min(2*wait, capacityLast) {
		s, err := w.dialer.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		e := &episode{world: w, session: s}
		said, err := e.reset(ctx, parameters)
		if err == nil {
			return e, said, nil
		}
		s.close(ctx)
		var refused *serverError
		if !errors.As(err, &refused) || refused.Code != full {
			return nil, nil, err
		}
		if w.places.lower(int(refused.MaxSessions)) {
			w.log("info", fmt.Sprintf("the server allows %d sessions at once, so no more episodes are played at once "+
				"(its max_concurrent_envs)", refused.MaxSessions))
		}
		if time.Now().Add(wait).After(deadline) {
			return nil, nil, fmt.Errorf("the server was full for capacity_timeout = %s: %w", w.config.CapacityTimeout, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// failed is what an error of the server means: the episode is infra_failed, or the block ends because the recipe is
// wrong.
func (w *world) failed(err error) error {
	var wrong *recipeError
	if errors.As(err, &wrong) {
		return err
	}
	return w.server.Failed(err)
}

// recipeError is a mistake of the recipe that only an answer of the server shows.
type recipeError struct{ error }

// episode is one session.
type episode struct {
	world   *world
	session session
	free    sync.Once
}

// reset resets the session and returns the conversation with which the episode begins.
func (e *episode) reset(ctx context.Context, parameters map[string]any) ([]environment.Message, error) {
	c := e.world.config
	r, err := e.session.reset(ctx, parameters)
	if err != nil {
		return nil, err
	}
	if r.Done {
		return nil, errors.New("reset: the episode is over before its first turn")
	}
	text, err := c.text(r.Observation)
	if err != nil {
		return nil, &recipeError{err}
	}
	var system []string
	if c.SystemPrompt != "" {
		system = append(system, c.SystemPrompt)
	}
	if p := e.world.actions.prompt(); p != "" {
		system = append(system, p)
	}
	if e.world.actions.format == asTools {
		p, err := e.tools(ctx)
		if err != nil {
			return nil, err
		}
		system = append(system, p)
	}
	said := []environment.Message{{Role: "user", Content: text}}
	if len(system) > 0 {
		said = append([]environment.Message{{Role: "system", Content: strings.Join(system, "\n\n")}}, said...)
	}
	return said, nil
}

// tools tells the model of the environment's MCP tools.
func (e *episode) tools(ctx context.Context) (string, error) {
	answer, err := e.session.rpc(ctx, "tools/list", map[string]any{})
	if err != nil {
		return "", err
	}
	var list struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
			InputSchema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(answer, &list); err != nil || len(list.Tools) == 0 {
		return "", fmt.Errorf("tools/list: want a list of tools, got %s", brief(answer))
	}
	tools := make([]toolcall.Tool, len(list.Tools))
	for i, t := range list.Tools {
		tools[i] = toolcall.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema}
		if len(t.InputSchema) == 0 {
			tools[i].Parameters = t.Schema
		}
	}
	return toolcall.Prompt(tools)
}

// Step plays one turn.
func (e *episode) Step(ctx context.Context, said environment.Completion) (environment.Step, error) {
	if e.world.actions.format == asTools {
		return e.call(ctx, said.Text)
	}
	action, err := e.world.actions.read(said.Text)
	if err != nil {
		return e.invalid(err), nil
	}
	r, step, err := e.act(ctx, action)
	if r == nil || err != nil {
		return step, err
	}
	text, err := e.world.config.text(r.Observation)
	if err != nil {
		return step, err
	}
	step.Messages = []environment.Message{{Role: "user", Content: text}}
	return step, nil
}

// act sends one action. The result is nil when the action was invalid.
func (e *episode) act(ctx context.Context, action map[string]any) (*result, environment.Step, error) {
	r, err := e.session.step(ctx, action)
	var refused *serverError
	switch {
	case err == nil:
		return r, environment.Step{Reward: float64(r.Reward), Done: r.Done}, nil
	case errors.As(err, &refused) && (refused.Code == invalidAction ||
		refused.Code == execution && e.world.config.ExecutionError == "invalid_action"):
		return nil, e.invalid(refused), nil
	}
	return nil, environment.Step{}, e.world.failed(err)
}

// invalid is the answer to a turn that is no action.
func (e *episode) invalid(why error) environment.Step {
	text := environment.Shorten("That is no valid action: "+why.Error(), int(e.world.config.MaxObservationChars))
	return environment.Step{Messages: []environment.Message{{Role: "user", Content: text}},
		Reward: e.world.config.InvalidActionReward, Invalid: true}
}

// call plays one turn of tool calls. An answer without one ends the episode.
func (e *episode) call(ctx context.Context, text string) (environment.Step, error) {
	calls, err := toolcall.Parse(text)
	if err != nil {
		return e.invalid(err), nil
	}
	if len(calls) == 0 {
		return environment.Step{Done: true}, nil
	}
	var all environment.Step
	var results []string
	for _, c := range calls {
		action := map[string]any{"type": "call_tool", "tool_name": c.Name, "arguments": c.Arguments}
		maps.Copy(action, e.world.config.Action)
		r, step, err := e.act(ctx, action)
		if err != nil {
			return step, err
		}
		all.Reward += step.Reward
		all.Done, all.Invalid = step.Done, all.Invalid || step.Invalid
		if r == nil {
			results = append(results, step.Messages[0].Content)
			continue
		}
		answer, err := toolAnswer(r.Observation)
		if err != nil {
			return step, e.world.failed(err)
		}
		results = append(results, environment.Shorten(answer, int(e.world.config.MaxObservationChars)))
		if all.Done {
			break
		}
	}
	all.Messages = []environment.Message{{Role: "user", Content: toolcall.Response(results)}}
	return all, nil
}

// toolAnswer is what a tool has answered. A tool that could not be reached is a failure of the environment, everything
// else is for the model.
func toolAnswer(observation map[string]json.RawMessage) (string, error) {
	var failure struct {
		Type    string `json:"error_type"`
		Message string `json:"message"`
	}
	if raw, ok := observation["error"]; ok && string(raw) != "null" {
		if err := json.Unmarshal(raw, &failure); err != nil {
			return "", fmt.Errorf("step: the tool's error cannot be read: %s", brief(raw))
		}
		if failure.Type == "transport_error" || failure.Type == "timeout" {
			return "", fmt.Errorf("step: the tool failed (%s): %s", failure.Type, failure.Message)
		}
		return fmt.Sprintf("error (%s): %s", failure.Type, failure.Message), nil
	}
	raw, ok := observation["result"]
	if !ok {
		return "", fmt.Errorf("step: want an observation with result, got %s", keys(observation))
	}
	var mcp struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(raw, &mcp) == nil && len(mcp.Content) > 0 {
		var parts []string
		for _, c := range mcp.Content {
			if c.Type == "text" {
				parts = append(parts, c.Text)
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, "\n"), nil
		}
	}
	return plain(raw), nil
}

// Close ends the session.
func (e *episode) Close(ctx context.Context) {
	e.free.Do(func() {
		e.session.close(ctx)
		e.world.places.free()
	})
}
