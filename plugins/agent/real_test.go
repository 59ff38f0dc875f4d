package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// programs are agents as their authors publish them, each with what a person writes to run it. scripts/agents.sh
// installs them.
var programs = map[string]struct {
	file, text string
	command    []string // after the file; empty: python FILE INSTRUCTION
	node       string   // the program of npm that it needs
	turns      float64  // at least
	sequences  float64  // of each rollout; 0: any
}{
	"openai": {file: "loop.py", turns: 3, sequences: 1, text: `
import os, sys
from openai import OpenAI
client, messages = OpenAI(), [{"role": "user", "content": sys.argv[1]}]
for _ in range(3):
    said = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages).choices[0].message
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "Go on."}]
`},
	"anthropic": {file: "loop.py", turns: 3, sequences: 1, text: `
import os, sys
from anthropic import Anthropic
client, messages = Anthropic(), [{"role": "user", "content": sys.argv[1]}]
for _ in range(3):
    asked = {"model": os.environ["ANTHROPIC_MODEL"], "messages": messages, "max_tokens": 64, "system": "Be brief."}
    with client.messages.stream(**asked) as stream:
        said = stream.get_final_message()
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "Go on."}]
`},
	"pydantic-ai": {file: "loop.py", turns: 2, sequences: 1, text: `
import os, sys
from pydantic_ai import Agent
agent = Agent("openai-chat:" + os.environ["OPENAI_MODEL"], system_prompt="Add numbers.")
@agent.tool_plain
def add(x: int, y: int) -> int:
    "Adds two numbers."
    return x + y
print(agent.run_sync(sys.argv[1]).output)
`},
	"openai-agents": {file: "loop.py", turns: 2, sequences: 1, text: `
import os, sys
from agents import Agent, Runner, function_tool, set_tracing_disabled
set_tracing_disabled(True)
@function_tool
def add(x: int, y: int) -> int:
    "Adds two numbers."
    return x + y
agent = Agent(name="a", instructions="Add numbers.", tools=[add], model=os.environ["OPENAI_MODEL"])
print(Runner.run_sync(agent, sys.argv[1]).final_output)
`},
	"smolagents": {file: "loop.py", turns: 1, text: `
import os, sys
from smolagents import CodeAgent, OpenAIServerModel
model = OpenAIServerModel(os.environ["OPENAI_MODEL"], api_base=os.environ["OPENAI_BASE_URL"],
                          api_key=os.environ["OPENAI_API_KEY"])
print(CodeAgent(tools=[], model=model, max_steps=3).run(sys.argv[1]))
`},
	"mini-swe-agent": {file: "run.sh", command: []string{"bash"}, turns: 2, sequences: 1, text: `
export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors MSWEA_SILENT_STARTUP=1
exec mini -y --exit-immediately -m "openai/$OPENAI_MODEL" -t "$1" -o trajectory.json
`},
	"claude-code": {file: "run.sh", command: []string{"bash"}, node: "claude", turns: 2, sequences: 1, text: `
export HOME=$PWD CLAUDE_CODE_ATTRIBUTION_HEADER=0 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1
exec claude -p "$1" --model "$ANTHROPIC_MODEL" --allowedTools Bash
`},
	"codex": {file: "run.sh", command: []string{"bash"}, node: "codex", turns: 2, sequences: 1, text: `
export HOME=$PWD CODEX_HOME=$PWD/.codex
mkdir -p "$CODEX_HOME"
cat >"$CODEX_HOME/config.toml" <<END
model = "$OPENAI_MODEL"
model_provider = "recipe"
[model_providers.recipe]
name = "recipe"
base_url = "$OPENAI_BASE_URL"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
END
exec codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "$1"
`},
	"opencode": {file: "run.sh", command: []string{"bash"}, node: "opencode", turns: 2, text: `
export HOME=$PWD XDG_CONFIG_HOME=$PWD/.config XDG_DATA_HOME=$PWD/.data
export XDG_CACHE_HOME=$PWD/.cache XDG_STATE_HOME=$PWD/.state
cat >opencode.json <<END
{"provider": {"recipe": {"npm": "@ai-sdk/openai-compatible",
 "options": {"baseURL": "$OPENAI_BASE_URL", "apiKey": "$OPENAI_API_KEY"},
 "models": {"$OPENAI_MODEL": {"tool_call": true}}}}, "permission": "allow", "autoupdate": false}
END
exec opencode run -m "recipe/$OPENAI_MODEL" "$1"
`},
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
	server := plugintest.Harness(t, newScripted())
	server.Start(noConfig{})
	server.Ready()
	for name, c := range programs {
		t.Run(name, func(t *testing.T) {
			if c.node != "" {
				if _, err := os.Stat(filepath.Join(node, c.node)); err != nil {
					t.Skipf("%s is not installed: it needs Node", c.node)
				}
			}
			dir := t.TempDir()
			for file, text := range map[string]string{c.file: c.text,
				"tasks.jsonl": `{"instruction": "What is 2 + 5? Write the number into answer.txt."}` + "\n",
				"reward.py": "def score(folder, transcript):\n    file = folder / 'answer.txt'\n" +
					"    return float('7' in (file.read_text() if file.exists() else transcript[-1]['content'] or ''))\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := c.command
			if command == nil {
				command = []string{"python"}
			}
			api := plugintest.FakeTrajectories(t, 2)
			book := api.Reference()
			b := plugintest.Harness(t, Plugin())
			b.Start(Config{
				Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book, GroupSize: 2,
					MaxTokens: 4096, Temperature: 1, TopP: 1, Concurrency: 1, MaxBatchesOffpolicy: 1,
					RequestTimeout: time.Minute, ScoreTimeout: time.Minute},
				SessionSettings: environment.SessionSettings{RolloutAttempts: 1,
					Budget: environment.BudgetSettings{Turns: 12, Seconds: 240}},
				Command: append(command, c.file, "${task.instruction}"), Tasks: "tasks.jsonl", Reward: "reward.py:score",
				Sandbox: Sandbox{Kind: "none"}, Programs: 2, Keep: "all",
			}, in(dir), scripttest.With(filepath.Join(installed, "python")), environ(map[string]string{
				"PATH": node + ":" + installed + ":" + os.Getenv("PATH")}))
			g := api.Wait(1)[0]
			plugintest.CheckGroup(t, g)
			for i := range g.Scores {
				got, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
				calls, _ := got["calls"].(float64)
				if calls < c.turns || c.sequences > 0 && got["sequences"] != c.sequences {
					t.Errorf("rollout %d: %v, want at least %v calls in %v sequences", i, got, c.turns, c.sequences)
				}
				t.Logf("score %v, %v, %d tokens", g.Scores[i], got, len(g.Tokens[i]))
			}
		})
	}
}

func environ(variables map[string]string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Environment = variables }
}
