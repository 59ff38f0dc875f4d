package script

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// opener opens environments of one definition.
type opener struct {
	name   string
	schema *spec.Schema
	source Source
}

// program is an environment whose methods are those of a Python class.
type program struct {
	*worker
	grace   time.Duration
	python  string // the interpreter
	bundled string // folder of the code where it is part of recipe
	// packages are what recipe init installs for it.
	packages sdk.Packages
	order    string // digest of the settings
}

// player is a program with rollouts of its own.
type player struct{ *program }

// evaluated and evaluatedPlayer have a held-out set, too.
type (
	evaluated       struct{ *program }
	evaluatedPlayer struct{ *player }
)

var (
	_ environment.Environment = (*program)(nil)
	_ environment.GroupScorer = (*program)(nil)
	_ environment.Skipper     = (*program)(nil)
	_ environment.Ordered     = (*program)(nil)
	_ environment.Closer      = (*program)(nil)
	_ environment.Monitored   = (*program)(nil)
	_ environment.Restorer    = (*program)(nil)
	_ environment.Roller      = (*player)(nil)
	_ environment.Evaluable   = (*evaluated)(nil)
	_ environment.Evaluable   = (*evaluatedPlayer)(nil)
)

func asProgram(p *program) *program                 { return p }
func asPlayer(p *program) *player                   { return &player{p} }
func asEvaluated(p *program) *evaluated             { return &evaluated{p} }
func asEvaluatedPlayer(p *program) *evaluatedPlayer { return &evaluatedPlayer{&player{p}} }

// opens is the function that opens environments, each as one of the types above.
func opens[C config, E any](o opener, as func(*program) E) func(context.Context, environment.Setup[C]) (E, error) {
	return func(ctx context.Context, setup environment.Setup[C]) (e E, err error) {
		p, err := o.open(ctx, environment.Setup[config]{Config: setup.Config, Name: setup.Name,
			Environment: setup.Environment, Block: setup.Block, Host: setup.Host})
		if err != nil {
			return e, err
		}
		return as(p), nil
	}
}

// open starts the worker and makes the environment in it.
func (o opener) open(ctx context.Context, setup environment.Setup[config]) (*program, error) {
	return openProgram(ctx, o.name, o.source, opening{setup.Name, setup.Environment, setup.Block, setup.Host,
		setup.Config.ScoreLimit()}, func() (map[string]json.RawMessage, error) { return o.settings(setup) })
}

// opening is what a Python program is opened with besides its settings.
type opening struct {
	name        string // of the block
	environment map[string]string
	block       sdk.Block
	host        sdk.Host
	limit       time.Duration // of one score
}

// openProgram starts the worker of a plugin, and makes the environment in it.
func openProgram(ctx context.Context, plugin string, source Source, setup opening,
	made func() (map[string]json.RawMessage, error)) (*program, error) {
	block, host := setup.block, setup.host
	// The worker of an earlier attempt ends with its plugin process; one that hangs is ended here.
	if err := proc.KillAll(ctx, proc.Parse(block.Handle)); err != nil {
		host.Log("warn", err.Error())
	}
	python, err := interpreter.Find(block.Runtime, source.Packages, block.RecipeDir, func(name string) string {
		if v, ok := setup.environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
	if err != nil {
		return nil, err
	}
	settings, err := made()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(block.Dir, "python")
	if err := writeSource(folder, source); err != nil {
		return nil, err
	}
	file, original, err := source.current()
	if err != nil {
		return nil, err
	}
	host.Phase(sdk.Starting, "importing the environment")
	argv := []string{python, "-m", "recipe_sdk.environment.serve", strconv.Itoa(firstInherited), file, plugin, original}
	env := withPython(python, os.Environ(), setup.environment, folder)
	w, err := start(ctx, argv, env, block.RecipeDir, block.Dir, host)
	if err != nil {
		return nil, err
	}
	p := &program{worker: w, grace: min(host.Grace()/4, closeGrace), python: python,
		order: orderOf(settings), packages: source.Packages}
	if source.Tree != nil {
		p.bundled = folder
	}
	host.Phase(sdk.Loading, "setting up the environment")
	err = w.call(ctx, "open", map[string]any{"settings": settings, "name": setup.name, "folder": block.RecipeDir,
		"state": block.Dir, "score_timeout": setup.limit.Seconds()}, nil)
	if err == nil {
		return p, nil
	}
	if problem := problemOf(err); problem != nil {
		err = problem.asError("set up the environment", p.bundled, p.packages)
	}
	_ = w.stop(ctx, 0)
	return nil, err
}

// firstInherited is the descriptor of the first file that a program inherits.
const firstInherited = 3

// closeGrace bounds the environment's close.
const closeGrace = 5 * time.Second

// Close ends the environment and its process.
func (p *program) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.grace)
	defer cancel()
	if err := p.call(ctx, "close", struct{}{}, nil); err != nil && problemOf(err) != nil {
		p.log("warn", fmt.Sprintf("close the environment: %s", problemOf(err).text()))
	}
	return p.stop(ctx, p.grace)
}

// task is what the worker says of a task, which stays with it.
type task struct {
	Task     int                   `json:"task"`
	Prompt   string                `json:"prompt"`
	Messages []environment.Message `json:"messages"`
	Expected string                `json:"expected"`
	Data     json.RawMessage       `json:"data"`      // for the record
	Omitted  string                `json:"no_record"` // why there is none
	environment.Template
}

// held is the Data of a task: its number in the worker, and the author's data for the record.
type held struct {
	number  int
	data    json.RawMessage
	omitted string
}

// MarshalJSON returns the author's data.
func (h held) MarshalJSON() ([]byte, error) {
	if h.data == nil {
		return nil, errors.New(cmp.Or(h.omitted, "its data is not recorded"))
	}
	return h.data, nil
}

// numberOf is the number of a task in the worker.
func numberOf(t environment.Task) int {
	h, _ := t.Data.(held)
	return h.number
}

// Restore implements environment.Restorer.
func (p *program) Restore(ctx context.Context, t environment.Task, data json.RawMessage) (environment.Task, error) {
	var got task
	params := map[string]any{"prompt": t.Prompt, "messages": append([]environment.Message{}, t.Messages...),
		"expected": t.Expected, "data": data}
	if t.Template.Tools != nil {
		params["tools"] = t.Template.Tools
	}
	if t.Template.Arguments != nil {
		params["chat_template_kwargs"] = t.Template.Arguments
	}
	if err := p.call(ctx, "restore", params, &got); err != nil {
		return t, p.explain(err)
	}
	return p.task(got), nil
}

func (p *program) task(t task) environment.Task {
	if len(t.Messages) == 0 {
		t.Messages = nil
	}
	return environment.Task{Prompt: t.Prompt, Messages: t.Messages, Template: t.Template, Expected: t.Expected,
		Data: held{t.Task, t.Data, t.Omitted}, Release: func() {
			_ = p.conn.Notify(context.Background(), "release", map[string]int{"task": t.Task})
		}}
}

// Next implements environment.Environment.
func (p *program) Next(ctx context.Context) (environment.Task, error) {
	var got *task
	if err := p.call(ctx, "next", struct{}{}, &got); err != nil {
		return environment.Task{}, p.explain(err)
	}
	if got == nil {
		return environment.Task{}, environment.EOF
	}
	return p.task(*got), nil
}

// Skip implements environment.Skipper.
func (p *program) Skip(ctx context.Context, n int64) error {
	var ended bool
	if err := p.call(ctx, "skip", map[string]int64{"count": n}, &ended); err != nil {
		return p.explain(err)
	}
	if ended {
		return environment.EOF
	}
	return nil
}

// Order implements environment.Ordered.
func (p *program) Order() string { return p.order }

// orderOf is a digest of what an author's settings say. A reference to another block is left out: its address and its
// key are others in each life. So is code: a corrected reward function is no reason to train on the same tasks again.
func orderOf(settings map[string]json.RawMessage) string {
	known := map[string]any{}
	for name, value := range settings {
		var v any
		_ = json.Unmarshal(value, &v) // JSON already
		known[name] = ordering(v)
	}
	data, _ := json.Marshal(known)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// ordering is a value without references and code, as converter writes them.
func ordering(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = ordering(v[i])
		}
	case map[string]any:
		_, file := v["file"]
		_, function := v["function"].(string)
		if address, _ := v["base_url"].(string); address != "" || file && function {
			return nil
		}
		for name := range v {
			v[name] = ordering(v[name])
		}
	}
	return v
}

// Score implements environment.Environment.
func (p *program) Score(ctx context.Context, t environment.Task, c environment.Completion) (float64, error) {
	out, err := p.ScoreGroup(ctx, t, []environment.Completion{c}, 0)
	if err != nil {
		return 0, err
	}
	return out[0].Score, out[0].Err
}

// ScoreGroup implements environment.GroupScorer.
func (p *program) ScoreGroup(ctx context.Context, t environment.Task, list []environment.Completion, step int64,
) ([]environment.Scored, error) {
	var got []struct {
		Score   float64            `json:"score"`
		Metrics map[string]float64 `json:"metrics"`
		Error   *jsonrpc2.Error    `json:"error"`
	}
	completions := make([]map[string]any, len(list))
	for i, c := range list {
		completions[i] = completion(c)
	}
	params := map[string]any{"task": numberOf(t), "completions": completions, "step": step}
	if err := p.call(ctx, "score_group", params, &got); err != nil {
		return nil, p.explain(err)
	}
	if len(got) != len(list) {
		return nil, fmt.Errorf("%d scores were returned for %d completions", len(got), len(list))
	}
	out := make([]environment.Scored, len(list))
	for i, g := range got {
		if g.Error != nil {
			out[i].Err = p.explain(g.Error)
			continue
		}
		out[i].Score = g.Score
		for name, v := range g.Metrics {
			list[i].Metric(name, v)
		}
	}
	return out, nil
}

// completion is how the worker reads one.
func completion(c environment.Completion) map[string]any {
	// never null
	out := map[string]any{"text": c.Text, "finish": c.Finish, "stop": c.Stop, "tokens": append([]int{}, c.Tokens...),
		"logprobs": append([]float64{}, c.Logprobs...)}
	if len(c.Messages) > 0 {
		out["messages"] = c.Messages
	}
	return out
}

// EvaluationTasks implements environment.Evaluable.
func (e *evaluated) EvaluationTasks(ctx context.Context) ([]environment.Task, error) {
	return e.heldOut(ctx)
}

// EvaluationTasks implements environment.Evaluable.
func (e *evaluatedPlayer) EvaluationTasks(ctx context.Context) ([]environment.Task, error) {
	return e.heldOut(ctx)
}

func (p *program) heldOut(ctx context.Context) ([]environment.Task, error) {
	var got []task
	if err := p.call(ctx, "held_out", struct{}{}, &got); err != nil {
		return nil, p.explain(err)
	}
	tasks := make([]environment.Task, len(got))
	for i, t := range got {
		tasks[i] = p.task(t)
	}
	return tasks, nil
}

// explain turns an exception of the author's code into an error with its place.
func (p *program) explain(err error) error {
	problem := problemOf(err)
	switch {
	case problem == nil:
		return err
	case problem.Kind == kindInfra:
		return &environment.InfraFailed{Err: &raised{errors.New(problem.text()), problem.cause(p.bundled)}}
	}
	return &raised{problem.asError("", p.bundled, p.packages), problem.cause(p.bundled)}
}

// settings are the attributes of the block that the settings class declares, as JSON.
func (o opener) settings(setup environment.Setup[config]) (map[string]json.RawMessage, error) {
	v, _ := setup.Config.values().UnmarkDeep()
	conv := converter{recipeDir: setup.Block.RecipeDir, folder: filepath.Join(setup.Block.Dir, "code")}
	return conv.body(o.schema, v)
}
