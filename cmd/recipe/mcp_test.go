package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agentRecipe runs until it is stopped.
const agentRecipe = `
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 1000000
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// agent is a session of a client with a real recipe mcp process over its standard input and output.
type agent struct {
	t       *testing.T
	session *mcp.ClientSession
}

// newAgent starts recipe mcp in dir. ask answers for the person; nil: the client cannot ask.
func newAgent(t *testing.T, dir string, ask func(question string) (action string), args ...string) *agent {
	t.Helper()
	cmd := exec.Command("recipe", append([]string{"mcp"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return agentOf(t, cmd, ask)
}

// agentOf starts cmd, a recipe mcp.
func agentOf(t *testing.T, cmd *exec.Cmd, ask func(question string) (action string)) *agent {
	t.Helper()
	options := &mcp.ClientOptions{}
	if ask != nil {
		options.ElicitationHandler = func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: ask(req.Params.Message), Content: map[string]any{}}, nil
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("recipe mcp ended with: %v", err)
		}
	})
	return &agent{t: t, session: session}
}

// tools are the names of the tools, and which say that they change nothing.
func (g *agent) tools() (names, readOnly []string) {
	g.t.Helper()
	list, err := g.session.ListTools(g.t.Context(), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Annotations.ReadOnlyHint {
			readOnly = append(readOnly, tool.Name)
		}
	}
	return names, readOnly
}

// call calls a tool, and returns its text and whether it is an error.
func (g *agent) call(name string, args map[string]any) (text string, failed bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	result, err := g.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	for _, c := range result.Content {
		text += c.(*mcp.TextContent).Text
	}
	return text, result.IsError
}

// structured calls a tool and returns its structured result, or with part one value of it.
func (g *agent) structured(name string, args map[string]any, part string) json.RawMessage {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	result, err := g.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		g.t.Fatal(err)
	}
	text, err := json.Marshal(result.StructuredContent)
	if err != nil {
		g.t.Fatal(err)
	}
	if part == "" {
		return text
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || parts[part] == nil {
		g.t.Fatalf("%s: the structured result has no %q (%v): %.500s", name, part, err, text)
	}
	return parts[part]
}

// must calls a tool, which must succeed and say what is wanted.
func (g *agent) must(name string, args map[string]any, wants ...string) string {
	g.t.Helper()
	text, failed := g.call(name, args)
	if failed {
		g.t.Fatalf("%s: %s", name, text)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			g.t.Errorf("%s: %q is not in\n%s", name, want, text)
		}
	}
	return text
}

// refused calls a tool, which must fail and say why.
func (g *agent) refused(name string, args map[string]any, want string) {
	g.t.Helper()
	if text, failed := g.call(name, args); !failed || !strings.Contains(text, want) {
		g.t.Errorf("%s: failed is %v, want an error with %q:\n%s", name, failed, want, text)
	}
}

// planned makes a plan and returns its id.
func (g *agent) planned() string {
	g.t.Helper()
	first, rest, _ := strings.Cut(g.must("plan", map[string]any{"recipe": "agent.hcl"}), "\n")
	var plan struct {
		Operations []struct{ Address, Action string } `json:"operations"`
	}
	if err := json.Unmarshal([]byte(rest), &plan); err != nil || len(plan.Operations) != 5 {
		g.t.Fatalf("plan: %v, %s", err, rest)
	}
	return strings.TrimPrefix(first, "plan_id: ")
}

func (g *agent) await(tool string, args map[string]any, want string) {
	g.t.Helper()
	var text string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if text, _ = g.call(tool, args); strings.Contains(text, want) {
			return
		}
	}
	g.t.Fatalf("%s did not say %q within two minutes:\n%s", tool, want, text)
}

func agentFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(agentRecipe), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Without --allow an agent only looks.
//
//docs:agents.md Agents
func TestAnAgentChangesNothingUnlessAllowed(t *testing.T) {
	t.Parallel()
	dir := agentFolder(t)
	g := newAgent(t, dir, nil)
	names, readOnly := g.tools()
	want := []string{"docs", "logs", "metrics", "plan", "runs", "samples", "status", "validate", "why"}
	if slices.Sort(names); !slices.Equal(names, want) || len(readOnly) != len(want) {
		t.Errorf("tools %v, read-only %v, want all of %v", names, readOnly, want)
	}
	g.planned()
	g.refused("apply", map[string]any{"plan_id": "x"}, "it, by --allow apply")
	g.refused("status", nil, "there is no run")
	g.refused("metrics", nil, "there is no run")
	g.must("docs", nil, "grpo", "arithmetic")
	g.must("docs", map[string]any{"block": "trainer tiny"}, "## Arguments", "learning_rate")
	g.refused("logs", map[string]any{"tial": 5}, `"tial" is no argument: did you mean tail?`)
	g.refused("logs", map[string]any{"tial": 5}, "- since (optional): only lines since a time")
	g.refused("logs", map[string]any{"tail": "five"}, "- tail (optional): the newest so many lines")
	g.refused("runs", map[string]any{"recipe": "agent.hcl"}, "The tool runs takes no arguments")
	g.refused("docs", map[string]any{"block": "--help --help"}, "--help")
	g.refused("docs", map[string]any{"recipe": "nowhere.hcl", "block": "trainer tiny"}, "nowhere.hcl")
	g.refused("plan", map[string]any{"recipe": "agent.hcl", "vars": map[string]any{"steps": "1"}}, "steps")
	if _, err := os.Stat(filepath.Join(dir, ".recipe")); !os.IsNotExist(err) {
		t.Errorf("a run directory: %v", err)
	}
}

// A client that cannot ask a person is refused, and so is a plan that the person declines.
//
//docs:agents.md Agents
//docs:survival.md samples can hardly be looked at
func TestAnAgentAppliesWhatAPersonApproves(t *testing.T) {
	t.Parallel()
	dir := agentFolder(t)
	mute := newAgent(t, dir, nil, "--allow", "apply")
	mute.refused("apply", map[string]any{"plan_id": mute.planned()}, "--auto-approve")

	var asked []string
	answer := "decline"
	g := newAgent(t, dir, func(question string) string {
		asked = append(asked, question)
		return answer
	}, "--allow", "apply,evaluate,checkpoint,pause,resume,stop")
	id := g.planned()
	g.refused("apply", map[string]any{"plan_id": id}, "not approved")
	g.refused("apply", map[string]any{"plan": id}, "The tool apply takes:\n- plan_id: of the plan to apply")
	g.refused("apply", map[string]any{"plan_id": "another"}, "there is no plan")
	if _, err := os.Stat(filepath.Join(dir, ".recipe")); !os.IsNotExist(err) {
		t.Fatalf("a run directory: %v", err)
	}
	answer = "accept"
	g.must("apply", map[string]any{"plan_id": id})
	t.Cleanup(func() { // of a test that failed on the way
		cmd := exec.Command("recipe", "stop", "--kill")
		cmd.Dir = dir
		_ = cmd.Run()
	})
	if len(asked) != 2 || !strings.Contains(asked[1], "+ trainer.tiny.policy") {
		t.Errorf("the person was asked %q", asked)
	}

	g.await("metrics", nil, "trainer.tiny.policy reward")
	g.must("status", nil, `"trainer.tiny.policy"`, `"phase"`)
	g.must("runs", nil, dir)
	g.must("why", map[string]any{"recipe": "agent.hcl"}, `"blocks"`)
	g.must("logs", map[string]any{"tail": 500}, "run started")
	g.must("logs", map[string]any{"blocks": []string{"trainer.tiny.policy"}, "grep": "ready|progress|step"}, "trainer")
	g.refused("logs", map[string]any{"grep": "("}, "regular expression")
	g.must("metrics", map[string]any{"names": []string{"trainer.tiny.policy reward"}, "points": 5}, `"x":[`)
	g.refused("metrics", map[string]any{"names": []string{"trainer.tiny.policy rewrad"}}, "trainer.tiny.policy reward?")
	g.refused("metrics", map[string]any{"names": []string{"trainer.tiny.policy reward"}, "from": 3, "to": 1},
		"expected from before to")
	g.await("samples", map[string]any{"limit": 1}, `"prompt":"`)
	var list struct {
		Groups []struct {
			Block string
			ID    json.Number
		}
	}
	if err := json.Unmarshal([]byte(g.must("samples", map[string]any{"limit": 2})), &list); err != nil ||
		len(list.Groups) != 2 {
		t.Fatalf("samples: %v, %+v", err, list)
	}
	g.must("samples", map[string]any{"group": list.Groups[0].Block + "/" + list.Groups[0].ID.String()}, `"completions":[`)
	g.refused("samples", map[string]any{"group": "7"}, "expected BLOCK/ID")
	g.must("evaluate", map[string]any{"environment": "environment.arithmetic.sums", "limit": 4}, `"metrics"`)
	g.must("checkpoint", map[string]any{"trainer": "trainer.tiny.policy"}, `"path"`)
	g.must("pause", nil, "recipe resume")
	g.must("resume", nil, "resumed")
	g.must("stop", nil, "stopping")
	g.await("status", nil, `"status": "stopped"`)
}

// TestGuidesForAgentsNameRealCommands checks the commands in AGENTS.md and in skills, and the head of each guide, by
// which agents find it.
func TestGuidesForAgentsNameRealCommands(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	guides, err := filepath.Glob(filepath.Join(repository, "skills", "*", "SKILL.md"))
	if err != nil || len(guides) < 4 {
		t.Fatalf("guides: %v, %v", guides, err)
	}
	command := regexp.MustCompile("(?m)(?:`|^ *)recipe ([a-z][^`\n]*)")
	for _, page := range append(guides, filepath.Join(repository, "AGENTS.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := command.FindAllStringSubmatch(string(text), -1)
		if len(found) < 3 {
			t.Errorf("%s names %d commands: their form is not understood any more", page, len(found))
		}
		for _, m := range found {
			if err := understood(newRoot(a), strings.Fields(m[1])); err != nil {
				t.Errorf("%s: recipe %s: %v", page, m[1], err)
			}
		}
		name := filepath.Base(filepath.Dir(page))
		if filepath.Base(page) == "SKILL.md" &&
			!strings.HasPrefix(string(text), "---\nname: "+name+"\ndescription: ") {
			t.Errorf("%s does not begin with its name and description", page)
		}
	}
}
