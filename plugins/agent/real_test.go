package agent

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// others are what make test-agents runs: the agents of the table, and loops over libraries as a person writes them.
func others() map[string]other {
	out := map[string]other{
		"a loop with openai": {turns: 3, sequences: 1, text: `
import os, sys
from openai import OpenAI
client, messages = OpenAI(), [{"role": "user", "content": sys.argv[1]}]
for _ in range(3):
    said = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages).choices[0].message
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "Go on."}]
`},
		"a loop with anthropic": {turns: 3, sequences: 1, text: `
import os, sys
from anthropic import Anthropic
client, messages = Anthropic(), [{"role": "user", "content": sys.argv[1]}]
for _ in range(3):
    asked = {"model": os.environ["ANTHROPIC_MODEL"], "messages": messages, "max_tokens": 64, "system": "Be brief."}
    with client.messages.stream(**asked) as stream:
        said = stream.get_final_message()
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "Go on."}]
`},
	}
	for _, k := range Agents() {
		out[k.Name] = other{agent: k, turns: 2, sequences: 1}
		if k.Name == "smolagents" { // it adds the call that it made of an answer to the answer
			out[k.Name] = other{agent: k, turns: 2, sequences: 2}
		}
	}
	short := out["claude-code"]
	short.args = []string{"--bare", "--tools", "Bash", "--system-prompt", "Solve the task with Bash."}
	short.agent.Prompt = 500 // docs/environments/agent.md has it
	out["claude-code with a short prompt"] = short
	return out
}

type other struct {
	agent     Known
	args      []string
	text      string  // of a program of its own
	turns     float64 // at least
	sequences float64 // of each rollout
}

// Agents of others, unchanged, are the environment: two rollouts each, with tools, in the dialect that each speaks.
func TestAgentsOfOthers(t *testing.T) {
	installed, err := filepath.Abs("../../.cache/venv-agents/bin")
	if err != nil {
		t.Fatal(err)
	}
	node, err := filepath.Abs("../../.cache/node-agents/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(installed); err != nil {
		t.Skip("make test-agents installs the agents that this test runs")
	}
	prompts := &asked{}
	server := plugintest.Harness(t, newScripted(prompts))
	server.Start(noConfig{})
	server.Ready()
	list := others()
	for _, name := range slices.Sorted(maps.Keys(list)) {
		for _, kind := range []string{"none", "auto"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				c := list[name]
				if kind == "auto" {
					needsSandbox(t)
				}
				if strings.HasPrefix(c.agent.Install, "npm ") {
					if _, err := os.Stat(filepath.Join(node, c.agent.Program)); err != nil {
						t.Skipf("%s is not installed: it needs Node", c.agent.Name)
					}
				}
				c.try(t, kind, server, prompts, filepath.Join(installed, "python"), node+":"+installed)
			})
		}
	}
}

// try runs one group of rollouts.
func (c other) try(t *testing.T, kind string, server *plugintest.Block, prompts *asked, python, path string) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"loop.py": c.text,
		"tasks.jsonl": `{"question": "-1 + 8 = ? Write the number into answer.txt."}` + "\n",
		"reward.py": "def score(folder, transcript):\n    file = folder / 'answer.txt'\n" +
			"    return float('7' in (file.read_text() if file.exists() else transcript[-1]['content'] or ''))\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	api := plugintest.FakeTrajectories(t, 2)
	api.TakeParts()
	book := api.Reference()
	config := Config{
		Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book, GroupSize: 2,
			MaxTokens: 4096, Temperature: 1, TopP: 1, Concurrency: 1, MaxBatchesOffpolicy: 1,
			RequestTimeout: time.Minute, ScoreTimeout: time.Minute},
		SessionSettings: environment.SessionSettings{RolloutAttempts: 1,
			Budget: environment.BudgetSettings{Turns: 12, Seconds: 240}},
		Program: Program{Agent: &c.agent.Name, AgentArgs: c.args, Instruction: "${task.question}",
			Sandbox: Sandbox{Kind: kind, Network: []string{}, Paths: []string{}, Memory: 4, Tmp: 1, FileSize: 1,
				Processes: 512, OpenFiles: 1024}, Programs: 2, Keep: "all"},
		Tasks: "tasks.jsonl", Reward: "reward.py:score",
	}
	if c.text != "" {
		config.Agent, config.Instruction, config.Command = nil, "", []string{"python", "loop.py", "${task.question}"}
	}
	b := plugintest.Harness(t, Plugin())
	notForAgents(t, b.Request(config).Dir)
	prompts.take()
	b.Start(config, in(dir), scripttest.With(python), environ(map[string]string{
		"PATH": path + ":" + os.Getenv("PATH")}))
	if c.text == "" {
		want := fmt.Sprintf("%s %s, ", c.agent.Name, c.agent.Tried)
		b.Wait("the version of the agent", func(e *pluginpb.Event) bool {
			return strings.HasPrefix(e.GetLog().GetMessage(), want)
		})
	}
	g := api.Wait(1)[0]
	plugintest.CheckGroup(t, g)
	scores := map[float64]int{}
	for i := range g.Scores {
		if g.Continues(i) {
			continue
		}
		got, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
		calls, _ := got["calls"].(float64)
		if calls < c.turns || got["sequences"] != c.sequences || got["untrained_tokens"] != 0.0 {
			t.Errorf("rollout %d: %v, want at least %v calls in %v sequences, each token trained", i, got, c.turns,
				c.sequences)
		}
		scores[g.Scores[i]]++
		t.Logf("score %v, %v, %d tokens", g.Scores[i], got, len(g.Tokens[i]))
	}
	if c.agent.Name != "" && (scores[1] != 1 || scores[0] != 1) { // every second answer of the model is right
		t.Errorf("scores %v: did the agent's tool run?", g.Scores)
	}
	seen := prompts.take()
	if strings.Contains(strings.Join(seen, "\n"), notForThem) {
		t.Error("a prompt has a file of the folders above the rollout's")
	}
	t.Logf("its first prompt has %d bytes", len(seen[0]))
	// In a sandbox it has short paths, and nothing of the project above.
	less := kind == "none" && 4*(c.agent.Prompt-200) > len(seen[0])
	if first := len(seen[0]); c.text == "" && (4*c.agent.Prompt < first || less) {
		t.Errorf("its first prompt has %d bytes, so about %d tokens; the table has %d", first, first/4, c.agent.Prompt)
	}
}

const notForThem = "for people who work in the folder above"

// notForAgents makes a folder above the rollouts' folders a project's.
func notForAgents(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(notForThem), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func environ(variables map[string]string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Environment = variables }
}
