package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/session"
)

type planArgs struct {
	Recipe  string            `json:"recipe,omitempty" jsonschema:"the recipe file; default: the only one here"`
	Vars    map[string]string `json:"vars,omitempty" jsonschema:"values of variables, by name"`
	Set     map[string]string `json:"set,omitempty" jsonschema:"values of attributes of blocks in place of what the file says, by address and name, such as trainer.grpo.policy.learning_rate"`
	Targets []string          `json:"targets,omitempty" jsonschema:"only these addresses and the blocks they need"`
}

// plannedByAgent is a plan that can be applied: its file, and the arguments that it was made with.
type plannedByAgent struct {
	file  string
	args  []string
	shown *plan.Plan // as it was made, with the blocks
	asked string     // the newest question about it; empty: none yet
}

// plan makes a plan, and keeps it for apply.
func (t *mcpTools) plan(ctx context.Context, _ *mcp.CallToolRequest, in planArgs) (*mcp.CallToolResult, any, error) {
	if err := allowedRecipe(in.Recipe); err != nil {
		return nil, nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(in.Set)) {
		if err := allowedValue(at, in.Set[at]); err != nil {
			return nil, nil, err
		}
	}
	id := rand.Text()
	p := plannedByAgent{file: filepath.Join(t.folder, id+".json")}
	var given flags
	for _, name := range slices.Sorted(maps.Keys(in.Vars)) {
		given.set("var", name+"="+in.Vars[name])
	}
	for _, at := range slices.Sorted(maps.Keys(in.Set)) {
		given.set("set", at+"="+in.Set[at])
	}
	for _, target := range in.Targets {
		given.set("target", target)
	}
	p.args = append(given, "--")
	if in.Recipe != "" {
		p.args = append(p.args, in.Recipe)
	}
	ran := t.runAs(ctx, func(a *app) {
		a.sealed()
		a.planned = func(made *plan.Plan) { p.shown = made }
	}, append([]string{"plan", "--json", "--out=" + p.file}, p.args...)...)
	if ran.failed() {
		result := ran.answer()
		result.StructuredContent = document(ran.out)
		return result, nil, nil
	}
	t.mu.Lock()
	t.plans[id] = p
	t.mu.Unlock()
	result := answerText("plan_id: " + id + "\n" + ran.out)
	if made := document(ran.out); made != nil {
		result.StructuredContent = map[string]any{"plan_id": id, "plan": made}
	}
	return result, nil, nil
}

type applyArgs struct {
	PlanID string `json:"plan_id" jsonschema:"of the plan to apply, from the tool plan"`
}

type evaluateArgs struct {
	ofRun
	Environment string `json:"environment" jsonschema:"address of the environment, such as environment.words.train"`
	Limit       int    `json:"limit,omitempty" jsonschema:"at most so many held-out tasks; 0: all"`
}

type checkpointArgs struct {
	ofRun
	Trainer string `json:"trainer" jsonschema:"address of the trainer, such as trainer.grpo.policy"`
}

// addWriters adds the tools that change something and that the person has allowed.
func (t *mcpTools) addWriters(server *mcp.Server, allowed []string) {
	tool := func(name, description string, destructive bool) *mcp.Tool {
		beyond := name == "apply" || name == "evaluate" || name == "stop" // programs of the recipe, jobs of clusters
		return &mcp.Tool{Name: name, Description: description,
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive, OpenWorldHint: &beyond}}
	}
	add := map[string]func(){
		"apply": func() {
			mcp.AddTool(server, tool("apply", "Apply a plan, after the person has approved it: the run continues in the "+
				"background, and status shows it. Fails when the recipe or the run has changed since.", true), t.apply)
		},
		"evaluate": func() {
			mcp.AddTool(server, tool("evaluate", "Evaluate the policy of a live run on an environment's held-out tasks, and "+
				"wait for the result.", false),
				func(ctx context.Context, _ *mcp.CallToolRequest, in evaluateArgs) (*mcp.CallToolResult, any, error) {
					f := flags{"evaluate", "--json"}
					f.set("recipe", in.Recipe)
					f.number("limit", in.Limit)
					return t.structured(ctx, "", append(f, "--", in.Environment)...), nil, nil
				})
		},
		"checkpoint": func() {
			mcp.AddTool(server, tool("checkpoint", "Make a trainer of a live run save a checkpoint now.", false),
				func(ctx context.Context, _ *mcp.CallToolRequest, in checkpointArgs) (*mcp.CallToolResult, any, error) {
					f := flags{"checkpoint", "--json"}
					f.set("recipe", in.Recipe)
					return t.structured(ctx, "", append(f, "--", in.Trainer)...), nil, nil
				})
		},
		"pause":  t.pauseOrResume(server, tool("pause", "Pause a live run: inference holds requests, trainers wait.", false)),
		"resume": t.pauseOrResume(server, tool("resume", "Continue a paused run.", false)),
		"stop": func() {
			mcp.AddTool(server, tool("stop", "Begin to stop a run so that it can be continued: jobs write a checkpoint and "+
				"end. status shows the progress.", true),
				func(ctx context.Context, _ *mcp.CallToolRequest, in ofRun) (*mcp.CallToolResult, any, error) {
					f := flags{"stop", "--no-wait"}
					f.set("recipe", in.Recipe)
					return t.command(ctx, f...), nil, nil
				})
		},
	}
	for _, name := range allowed {
		add[name]()
	}
}

// pauseOrResume adds the tool whose command has its name.
func (t *mcpTools) pauseOrResume(server *mcp.Server, tool *mcp.Tool) func() {
	return func() {
		mcp.AddTool(server, tool,
			func(ctx context.Context, _ *mcp.CallToolRequest, in ofRun) (*mcp.CallToolResult, any, error) {
				f := flags{tool.Name}
				f.set("recipe", in.Recipe)
				return t.command(ctx, f...), nil, nil
			})
	}
}

// approval names the question in a call that was answered.
const approval = "approval"

// apply applies a plan of this session in a detached engine. It first asks the person, through the client.
func (t *mcpTools) apply(ctx context.Context, req *mcp.CallToolRequest, in applyArgs) (*mcp.CallToolResult, any,
	error) {
	t.mu.Lock()
	p, ok := t.plans[in.PlanID]
	t.mu.Unlock()
	if !ok {
		return nil, nil, fmt.Errorf("there is no plan %.40q in this session: make one with the tool plan", in.PlanID)
	}
	saved, err := session.ReadSaved(p.file)
	if err != nil {
		return nil, nil, err
	}
	if !t.approve {
		if err := canAsk(req, saved); err != nil {
			return nil, nil, err
		}
		text, err := question(saved, p.shown)
		if err != nil {
			return nil, nil, err
		}
		answer, answered := req.Params.InputResponses[approval].(*mcp.ElicitResult)
		switch {
		case !answered || p.asked == "":
			return t.askFor(in.PlanID, text), nil, nil
		case answer.Action != "accept":
			return nil, nil, errDeclined
		case text != p.asked:
			return nil, nil, errors.New("what the person approved has changed since the question, such as a file that the " +
				"plan names; nothing was changed. Call apply again: the person is asked about what is there now")
		}
	}
	return t.command(ctx, append([]string{"apply", "--detach", "--plan=" + p.file}, p.args...)...), nil, nil
}

// canAsk refuses a client that cannot ask a person about a plan.
func canAsk(req *mcp.CallToolRequest, saved *session.Saved) error {
	client := req.Session.InitializeParams()
	if client == nil || client.Capabilities == nil || client.Capabilities.Elicitation == nil {
		return fmt.Errorf("this client cannot ask a person for approval; nothing was changed. Let the person run "+
			"recipe apply %s, or start recipe mcp with --auto-approve", printable.ShellWord(saved.File))
	}
	return nil
}

// askFor makes the client ask the person about a plan; the client calls the tool again with the answer. The question is
// kept: the answer counts for what was shown.
func (t *mcpTools) askFor(id, text string) *mcp.CallToolResult {
	t.mu.Lock()
	p := t.plans[id]
	p.asked = text
	t.plans[id] = p
	t.mu.Unlock()
	ask := &mcp.ElicitParams{Message: text,
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{approval: ask}}
}
