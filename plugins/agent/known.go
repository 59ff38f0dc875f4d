package agent

import (
	"embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Known is an agent of others that the attribute agent names. The table below is all that recipe knows of it: the block
// starts it so, recipe env agents and doctor show it, and make test-agents runs it.
type Known struct {
	Name string
	// Dialect in which it speaks to the model.
	Dialect string
	// Program in PATH. Empty: it is a library, and a small program in the folder programs runs it.
	Program string
	// Package of Python, in the block's environment, of a library.
	Package string
	// Install is how a person installs it. recipe installs it only where runtime { requirements } names it.
	Install string
	// Tried is the version that make test-agents runs, From the oldest with which it passed. Versions from that one on and
	// older than Before give no warning.
	From, Tried, Before string
	// BaseURL and Key are the variables by which it learns where the model is.
	BaseURL, Key string
	// Prompt is how many tokens its first request has with a short instruction, about: a token has four bytes. A model
	// with a smaller context answers nothing.
	Prompt int

	version []string // arguments of Program that show its version
	start   func(request) started
}

// request is what an agent is started for.
type request struct {
	instruction, model, baseURL string
	args                        []string // of the person
	home                        string   // a folder of the rollout, beside the one that the agent works in
}

// started is how an agent is started.
type started struct {
	args  []string          // after the program
	env   map[string]string // beside the variables that every program gets
	files map[string]string // by path in home
}

// Dialects of models.
const (
	chat      = "Chat Completions"
	responses = "Responses"
	messages  = "Messages"
)

//go:embed programs/*.py
var programs embed.FS

// Agents are the known agents, by name.
func Agents() []Known {
	return []Known{
		{Name: "claude-code", Dialect: messages, Program: "claude", Install: "npm install -g @anthropic-ai/claude-code",
			From: "2.1.197", Tried: "2.1.332", Before: "2.2", BaseURL: "ANTHROPIC_BASE_URL", Key: "ANTHROPIC_API_KEY",
			Prompt: 12500, version: []string{"--version"}, start: claudeCode},
		{Name: "codex", Dialect: responses, Program: "codex", Install: "npm install -g @openai/codex",
			From: "0.171.0", Tried: "0.171.0", Before: "0.172", BaseURL: "OPENAI_BASE_URL", Key: "OPENAI_API_KEY", Prompt: 9700,
			version: []string{"--version"}, start: codex},
		{Name: "mini-swe-agent", Dialect: chat, Program: "mini", Install: required("mini-swe-agent==2.4.6"),
			From: "2.4.6", Tried: "2.4.6", Before: "2.5", BaseURL: "OPENAI_API_BASE", Key: "OPENAI_API_KEY", Prompt: 900,
			version: []string{"--help"}, start: miniSWEAgent}, // it has no --version, and begins each output with it
		library("openai", chat, "openai", "3.54.0", "3.54.0", "4", 200),
		library("openai-agents", responses, "openai-agents", "0.24.0", "0.24.0", "0.25", 200),
		{Name: "opencode", Dialect: chat, Program: "opencode", Install: "npm install -g opencode-ai",
			From: "1.18.33", Tried: "1.18.33", Before: "1.19", BaseURL: "OPENAI_BASE_URL", Key: "OPENAI_API_KEY", Prompt: 7800,
			version: []string{"--version"}, start: openCode},
		library("pydantic-ai", chat, "pydantic-ai-slim[openai]", "2.68.0", "2.68.0", "3", 200),
		library("smolagents", chat, "smolagents[openai]", "1.26.0", "1.26.0", "2", 2300),
	}
}

// required is how a person has a package of Python installed: recipe init reads it.
func required(requirement string) string {
	return fmt.Sprintf("runtime { requirements = [%q] }", requirement)
}

func claudeCode(r request) started {
	return started{
		args: slices.Concat([]string{"-p", "--model", r.model, "--allowedTools", "Bash,Edit,Write"}, r.args,
			[]string{"--", r.instruction}),
		env: map[string]string{"HOME": r.home, "CLAUDE_CONFIG_DIR": filepath.Join(r.home, ".claude"),
			"CLAUDE_CODE_ATTRIBUTION_HEADER": "0", // a text of the system prompt that differs in each call
			// CLAUDE.md of folders above the rollout's is for people who work there.
			"CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
			"DISABLE_AUTOUPDATER": "1"},
	}
}

func codex(r request) started {
	// project_doc_max_bytes: AGENTS.md of folders above the rollout's is for people who work there.
	config := fmt.Sprintf(`model = %s
model_provider = "recipe"
project_doc_max_bytes = 0
check_for_update_on_startup = false
[model_providers.recipe]
name = "recipe"
base_url = %s
env_key = "OPENAI_API_KEY"
wire_api = "responses"
`, quoted(r.model), quoted(r.baseURL))
	return started{
		args: slices.Concat([]string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}, r.args,
			[]string{"--", r.instruction}),
		env:   map[string]string{"HOME": r.home, "CODEX_HOME": filepath.Join(r.home, ".codex")},
		files: map[string]string{".codex/config.toml": config},
	}
}

func openCode(r request) started {
	config, err := json.MarshalIndent(map[string]any{
		"provider": map[string]any{"recipe": map[string]any{"npm": "@ai-sdk/openai-compatible",
			"options": map[string]string{"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
			"models":  map[string]any{r.model: map[string]bool{"tool_call": true}}}},
		"permission": "allow", "autoupdate": false, "share": "disabled"}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode texts: %v", err))
	}
	return started{
		// With a title of its own it asks the model for none.
		args: slices.Concat([]string{"run", "--model", "recipe/" + r.model, "--title", "task"}, r.args,
			[]string{"--", r.instruction}),
		env: map[string]string{"HOME": r.home, "XDG_CONFIG_HOME": filepath.Join(r.home, ".config"),
			"XDG_DATA_HOME": filepath.Join(r.home, ".data"), "XDG_CACHE_HOME": filepath.Join(r.home, ".cache"),
			"XDG_STATE_HOME": filepath.Join(r.home, ".state"), "OPENCODE_CONFIG": filepath.Join(r.home, "opencode.json"),
			// AGENTS.md of folders above the rollout's is for people who work there.
			"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_DISABLE_CLAUDE_CODE": "1",
			"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
		files: map[string]string{"opencode.json": string(config) + "\n"},
	}
}

func miniSWEAgent(r request) started {
	return started{
		args: slices.Concat([]string{"--yolo", "--exit-immediately", "--model", "openai/" + r.model,
			"--output", filepath.Join(r.home, "trajectory.json")}, r.args, []string{"--task=" + r.instruction}),
		// HOME stays: it may be installed in the user's own packages.
		env: map[string]string{"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors",
			"MSWEA_GLOBAL_CONFIG_DIR":      filepath.Join(r.home, ".mini"),
			"LITELLM_LOCAL_MODEL_COST_MAP": "True"}, // it asks no server for prices
	}
}

// quoted is a text as a basic string of TOML. Each string of JSON is one.
func quoted(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(fmt.Sprintf("encode a text: %v", err))
	}
	return strings.TrimSpace(b.String())
}

// library is an agent that is a library: a program in the folder programs makes the agent, with one tool, a shell.
func library(name, dialect, requirement, from, tried, before string, prompt int) Known {
	distribution, _, _ := strings.Cut(requirement, "[")
	return Known{Name: name, Dialect: dialect, Package: distribution, Install: required(requirement + "==" + tried),
		From: from, Tried: tried, Before: before,
		BaseURL: "OPENAI_BASE_URL", Key: "OPENAI_API_KEY", Prompt: prompt,
		start: func(r request) started {
			file := "programs/" + strings.ReplaceAll(name, "-", "_") + "_loop.py"
			files := map[string]string{}
			for _, f := range []string{file, "programs/recipe_shell.py"} {
				text, err := programs.ReadFile(f)
				if err != nil {
					panic(fmt.Sprintf("the program of agent %s: %v", name, err))
				}
				files[f] = string(text)
			}
			// In a folder of its own, so that nothing else is imported from there.
			return started{args: slices.Concat([]string{filepath.Join(r.home, file)}, r.args, []string{"--", r.instruction}),
				files: files}
		}}
}
