package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/ui"
	"github.com/recipe-rl/recipe/internal/nearest"
)

// mcpTools are the tools of one session with an agent. Each is a command of the command line: the agent gets what a
// person would read, as JSON where there is JSON.
type mcpTools struct {
	app     *app
	approve bool   // apply without asking
	folder  string // of saved plans

	mu    sync.Mutex
	plans map[string]plannedByAgent // by id
}

// maxAnswer bounds one answer, in bytes: it becomes a part of an agent's context.
const maxAnswer = 100_000

// command runs a command as a tool. The result of one that fails says what the command would have printed.
func (t *mcpTools) command(ctx context.Context, args ...string) *mcp.CallToolResult {
	return t.runAs(ctx, func(*app) {}, args...).answer()
}

// structured is command for one that prints a JSON document, or with list one a line: those are the value of that name
// in the result.
func (t *mcpTools) structured(ctx context.Context, list string, args ...string) *mcp.CallToolResult {
	ran := t.runAs(ctx, func(*app) {}, args...)
	result := ran.answer()
	if list == "" {
		result.StructuredContent = document(ran.out)
	} else if printed := printedValues(ran.out); printed != nil {
		result.StructuredContent = map[string]any{list: printed}
	}
	return result
}

// look is command for tools that promise to run nothing of a recipe's folder, also of what this user has approved.
func (t *mcpTools) look(ctx context.Context, args ...string) ranCommand {
	return t.runAs(ctx, (*app).sealed, args...)
}

// ranCommand is a command that has ended.
type ranCommand struct {
	out, errs string
	code      int
}

func (r ranCommand) failed() bool { return r.code != exitDone }

// answer is what the command has printed.
func (r ranCommand) answer() *mcp.CallToolResult {
	if !r.failed() {
		return answerText(r.out)
	}
	result := answerText(fmt.Sprintf("%s%s(exit code %d)", r.out, r.errs, r.code))
	result.IsError = true
	return result
}

// document is the JSON object in the output of a command; nil: there is none, or it is too long for an answer.
func document(out string) any {
	var value map[string]json.RawMessage
	if len(out) > maxAnswer || json.Unmarshal([]byte(out), &value) != nil {
		return nil
	}
	return json.RawMessage(out)
}

// printedValues are the JSON values in the lines of a command's output; nil: it has other lines, or is too long.
func printedValues(out string) []json.RawMessage {
	if len(out) > maxAnswer {
		return nil
	}
	list := []json.RawMessage{}
	for lines := json.NewDecoder(strings.NewReader(out)); lines.More(); {
		var value json.RawMessage
		if lines.Decode(&value) != nil {
			return nil
		}
		list = append(list, value)
	}
	return list
}

// runAs runs a command in this process. Each has a catalog of its own: a recipe must not know the plugins of another.
func (t *mcpTools) runAs(ctx context.Context, limit func(*app), args ...string) ranCommand {
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs, t.app.environ)
	a.joined, a.machine = true, t.app.machine
	limit(a)
	code := execute(ctx, a, args)
	return ranCommand{out.String(), errs.String(), code}
}

func answerText(text string) *mcp.CallToolResult {
	if left := len(text) - maxAnswer; left > 0 {
		cut := maxAnswer
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = fmt.Sprintf("%s\n… (%d more bytes: ask for less)", text[:cut], len(text)-cut)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// flags are arguments of a command; those without a value are left out. Values are attached to their flags, so that
// none is read as a flag.
type flags []string

func (f *flags) set(name, value string) {
	if value != "" {
		*f = append(*f, "--"+name+"="+value)
	}
}

func (f *flags) number(name string, value int) {
	if value != 0 {
		f.set(name, strconv.Itoa(value))
	}
}

// ofRun selects a run.
type ofRun struct {
	Recipe string `json:"recipe,omitempty" jsonschema:"the recipe file of the run, its folder, or its name in runs; needed when there are several runs here"`
}

type logsArgs struct {
	ofRun
	Blocks []string `json:"blocks,omitempty" jsonschema:"only of these addresses, such as trainer.grpo.policy"`
	Tail   int      `json:"tail,omitempty" jsonschema:"the newest so many lines (100)"`
	Since  string   `json:"since,omitempty" jsonschema:"only lines since a time such as 10m or 2026-03-01T12:00:00Z"`
	Level  string   `json:"level,omitempty" jsonschema:"only lines of at least this level: debug, info, warn or error"`
	Grep   string   `json:"grep,omitempty" jsonschema:"only lines that match this regular expression (RE2)"`
	Events bool     `json:"events,omitempty" jsonschema:"true: the events of the log as JSON, not as lines for people"`
}

type validateArgs struct {
	Recipe string            `json:"recipe,omitempty" jsonschema:"the recipe file; default: the only one here"`
	Vars   map[string]string `json:"vars,omitempty" jsonschema:"values of variables, by name"`
}

type whyArgs struct {
	ofRun
	After string `json:"after,omitempty" jsonschema:"time without progress after which a block counts as stalled, such as 2m"`
}

type metricsArgs struct {
	ofRun
	Names  []string `json:"names,omitempty" jsonschema:"metrics as ADDRESS METRIC, such as trainer.grpo.policy reward; without any, the names and newest values of all are listed"`
	From   *float64 `json:"from,omitempty" jsonschema:"first step"`
	To     *float64 `json:"to,omitempty" jsonschema:"last step"`
	Smooth float64  `json:"smooth,omitempty" jsonschema:"weight of the past in an exponential moving average, 0 to 0.9999"`
	Points int      `json:"points,omitempty" jsonschema:"at most so many points a metric (100): the least and the greatest of each stretch"`
}

type samplesArgs struct {
	ofRun
	Group       string `json:"group,omitempty" jsonschema:"BLOCK/ID of one group, as the list gives them: its conversation and completions"`
	Limit       int    `json:"limit,omitempty" jsonschema:"at most so many groups, newest first (10)"`
	Environment string `json:"environment,omitempty" jsonschema:"only of this environment"`
	Text        string `json:"text,omitempty" jsonschema:"only with this text in the prompt or a completion"`
	State       string `json:"state,omitempty" jsonschema:"only degenerate (all scores equal), mixed, trained, waiting, dropped or evaluation (held-out tasks)"`
	Least       string `json:"least,omitempty" jsonschema:"least mean score"`
	Most        string `json:"most,omitempty" jsonschema:"greatest mean score"`
}

type docsArgs struct {
	Recipe string `json:"recipe,omitempty" jsonschema:"a recipe file, whose own plugins are known, too"`
	Block  string `json:"block,omitempty" jsonschema:"KIND NAME, such as trainer grpo; without it, all blocks are listed"`
}

// addReaders adds the tools that change nothing.
func (t *mcpTools) addReaders(server *mcp.Server) {
	reader := func(name, description string) *mcp.Tool {
		clusters := name == "plan" || name == "status" // which are asked about jobs
		return &mcp.Tool{Name: name, Description: description,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &clusters}}
	}
	mcp.AddTool(server, reader("plan", "Check a recipe and show what applying it would do with each block."), t.plan)
	mcp.AddTool(server, reader("validate", "Check a recipe and report all of its errors at once."), t.validate)
	mcp.AddTool(server, reader("runs", "The runs of this machine, newest first. Other tools take a name as recipe."),
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			return t.structured(ctx, "", "runs", "--json"), nil, nil
		})
	mcp.AddTool(server, reader("status", "State of a run: phases, steps, newest metrics, policy version, stalls."),
		func(ctx context.Context, _ *mcp.CallToolRequest, in ofRun) (*mcp.CallToolResult, any, error) {
			f := flags{"status", "--json"}
			f.set("recipe", in.Recipe)
			return t.structured(ctx, "", f...), nil, nil
		})
	mcp.AddTool(server, reader("why", "What each block of a run waits for, down to the cause of a stall."),
		func(ctx context.Context, _ *mcp.CallToolRequest, in whyArgs) (*mcp.CallToolResult, any, error) {
			f := flags{"status", "--why", "--json"}
			f.set("recipe", in.Recipe)
			f.set("after", in.After)
			return t.structured(ctx, "", f...), nil, nil
		})
	mcp.AddTool(server, reader("logs", "The log of a run and its blocks, one line an event, newest last."),
		func(ctx context.Context, _ *mcp.CallToolRequest, in logsArgs) (*mcp.CallToolResult, any, error) {
			f := flags{"logs"}
			if in.Tail <= 0 {
				in.Tail = 100
			}
			f.set("recipe", in.Recipe)
			f.number("tail", in.Tail)
			f.set("since", in.Since)
			f.set("level", in.Level)
			f.set("grep", in.Grep)
			if in.Events {
				return t.structured(ctx, "events", append(append(f, "--json", "--"), in.Blocks...)...), nil, nil
			}
			return t.command(ctx, append(append(f, "--"), in.Blocks...)...), nil, nil
		})
	mcp.AddTool(server, reader("metrics", "Curves of a run: reward, loss, KL, lengths, seconds and all others."),
		t.metrics)
	mcp.AddTool(server, reader("samples", "What was sampled: groups of completions, scores, advantages."), t.samples)
	mcp.AddTool(server, reader("docs", "Reference of the blocks of a recipe: what they are, arguments, outputs."),
		func(ctx context.Context, _ *mcp.CallToolRequest, in docsArgs) (*mcp.CallToolResult, any, error) {
			if err := allowedRecipe(in.Recipe); err != nil {
				return nil, nil, err
			}
			f := flags{"plugin", "list"}
			if in.Block != "" {
				f = flags{"plugin", "docs"}
			}
			f.set("recipe", in.Recipe)
			return t.look(ctx, append(append(f, "--"), strings.Fields(in.Block)...)...).answer(), nil, nil
		})
}

// validate checks a recipe. A recipe with errors is a result; the tool fails when it cannot be checked.
func (t *mcpTools) validate(ctx context.Context, _ *mcp.CallToolRequest, in validateArgs) (*mcp.CallToolResult, any,
	error) {
	if err := allowedRecipe(in.Recipe); err != nil {
		return nil, nil, err
	}
	f := flags{"validate", "--json"}
	for _, name := range slices.Sorted(maps.Keys(in.Vars)) {
		f.set("var", name+"="+in.Vars[name])
	}
	f = append(f, "--")
	if in.Recipe != "" {
		f = append(f, in.Recipe)
	}
	ran := t.look(ctx, f...)
	if found := document(ran.out); found != nil {
		result := answerText(ran.out)
		result.StructuredContent = found
		return result, nil, nil
	}
	return ran.answer(), nil, nil
}

// metrics lists the metrics of a run, or gives the points of some.
func (t *mcpTools) metrics(ctx context.Context, _ *mcp.CallToolRequest, in metricsArgs) (*mcp.CallToolResult, any,
	error) {
	if len(in.Names) == 0 {
		return t.listMetrics(ctx, in.Recipe)
	}
	if in.Points <= 0 {
		in.Points = 100
	}
	if in.From != nil && in.To != nil && *in.From > *in.To {
		return nil, nil, fmt.Errorf("from is step %v and to is step %v: expected from before to", *in.From, *in.To)
	}
	if err := knownMetrics(ctx, in.Recipe, in.Names); err != nil {
		return nil, nil, err
	}
	query := url.Values{"name": in.Names, "points": {strconv.Itoa(in.Points)},
		"smooth": {strconv.FormatFloat(in.Smooth, 'g', -1, 64)}}
	for name, v := range map[string]*float64{"from": in.From, "to": in.To} {
		if v != nil {
			query.Set(name, strconv.FormatFloat(*v, 'g', -1, 64))
		}
	}
	return t.ask(ctx, in.Recipe, "/series", query)
}

func (t *mcpTools) listMetrics(ctx context.Context, recipe string) (*mcp.CallToolResult, any, error) {
	metrics, err := metricsOf(ctx, recipe)
	if err != nil {
		return nil, nil, err
	}
	return answerText(string(metrics)), nil, nil
}

// metricsOf are the names and newest values of the metrics of a run.
func metricsOf(ctx context.Context, recipe string) (json.RawMessage, error) {
	text, err := readRun(ctx, recipe, "", nil)
	if err != nil {
		return nil, err
	}
	var summary struct {
		Metrics json.RawMessage `json:"metrics"`
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return nil, fmt.Errorf("read the metrics of the run: %w", err)
	}
	return summary.Metrics, nil
}

// knownMetrics reports a name that no metric of the run has: without points it looks like one that is still to come.
func knownMetrics(ctx context.Context, recipe string, names []string) error {
	text, err := metricsOf(ctx, recipe)
	if err != nil {
		return err
	}
	var metrics []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(text, &metrics); err != nil {
		return fmt.Errorf("read the metrics of the run: %w", err)
	}
	var known []string
	for _, m := range metrics {
		known = append(known, m.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the run has no metric %q: %smetrics without names lists all that it has, each as ADDRESS METRIC",
				name, didYouMean(nearest.Name(name, known)))
		}
	}
	return nil
}

// samples lists groups, or shows one.
func (t *mcpTools) samples(ctx context.Context, _ *mcp.CallToolRequest, in samplesArgs) (*mcp.CallToolResult, any,
	error) {
	if in.Group != "" {
		block, id, ok := strings.Cut(in.Group, "/")
		if !ok {
			return nil, nil, fmt.Errorf("group is %q, expected BLOCK/ID, such as trajectories.builtin.default/7", in.Group)
		}
		return t.ask(ctx, in.Recipe, "/samples/"+url.PathEscape(block)+"/"+url.PathEscape(id), nil)
	}
	if in.Limit <= 0 {
		in.Limit = 10
	}
	query := url.Values{"limit": {strconv.Itoa(in.Limit)}}
	for name, v := range map[string]string{"environment": in.Environment, "text": in.Text, "state": in.State,
		"least": in.Least, "most": in.Most} {
		if v != "" {
			query.Set(name, v)
		}
	}
	return t.ask(ctx, in.Recipe, "/samples", query)
}

// ask answers with a part of what the dashboard shows of a run.
func (t *mcpTools) ask(ctx context.Context, recipe, path string, query url.Values) (*mcp.CallToolResult, any, error) {
	text, err := readRun(ctx, recipe, path, query)
	if err != nil {
		return nil, nil, err
	}
	result := answerText(string(text))
	result.StructuredContent = document(string(text))
	return result, nil, nil
}

// readRun reads a run as the dashboard's page does.
func readRun(ctx context.Context, recipe, path string, query url.Values) (json.RawMessage, error) {
	dir, _, err := locateRun(recipe)
	if err != nil {
		return nil, err
	}
	runs := map[string]state.Dir{"run": dir}
	server, err := ui.New(ui.Options{Runs: func() (map[string]state.Dir, error) { return runs, nil }})
	if err != nil {
		return nil, err
	}
	defer server.Close()
	return server.Get(ctx, "runs/run"+path, query)
}
