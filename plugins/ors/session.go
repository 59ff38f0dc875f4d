package ors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/toolcall"
)

// pingEvery is how often a session says that it is still wanted; hosted servers end it after two minutes of silence.
const pingEvery = 10 * time.Second

// session is one episode.
type session struct {
	world    *world
	id       string
	terminal *terminal
	stop     context.CancelFunc // of the pings
	done     sync.WaitGroup
	closed   sync.Once
}

// terminal is the tool that takes an answer without a tool call, which ends the episode.
type terminal struct {
	Name string  `json:"name"`
	Arg  *string `json:"arg"`
}

// begin creates the session and returns the conversation with which it begins.
func (s *session) begin(ctx context.Context, p place) ([]environment.Message, error) {
	w := s.world
	var err error
	if s.id, err = w.create(ctx, p); err != nil {
		return nil, err
	}
	pinging, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { s.ping(pinging) })
	said, err := s.messages(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := s.tools(ctx)
	if err != nil {
		return nil, err
	}
	var system []string
	if w.config.SystemPrompt != "" {
		system = append(system, w.config.SystemPrompt)
	}
	if said[0].Role == "system" {
		system, said = append(system, said[0].Content), said[1:]
	}
	if len(tools) > 0 {
		text, err := toolcall.Prompt(tools)
		if err != nil {
			return nil, err
		}
		system = append(system, text)
	}
	if len(system) > 0 {
		said = append([]environment.Message{{Role: "system", Content: strings.Join(system, "\n\n")}}, said...)
	}
	return said, nil
}

func (s *session) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// A session that is gone shows at the next call, which says why.
			_ = s.world.client.once(ctx, http.MethodPost, "/ping", s.id, nil, nil)
		}
	}
}

// message is one turn of a task's conversation.
type message struct {
	Role   string  `json:"role"`
	Blocks []block `json:"blocks"`
}

// block is a part of a message or of a tool's output.
type block struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	MimeType string         `json:"mimeType"`
	Name     string         `json:"name"`
	Input    map[string]any `json:"input"`
	Blocks   []block        `json:"blocks"`
}

// messages asks for the task as a conversation, and of a server before 0.1.157, which has only prompts, for that.
func (s *session) messages(ctx context.Context) ([]environment.Message, error) {
	w := s.world
	var list []message
	err := w.client.ask(ctx, http.MethodGet, w.route("/messages"), s.id, nil, &list)
	var missing *statusError
	if errors.As(err, &missing) && missing.code == http.StatusNotFound {
		one := message{Role: "user"}
		err = w.client.ask(ctx, http.MethodGet, w.route("/prompt"), s.id, nil, &one.Blocks)
		list = []message{one}
	}
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the task has no prompt")
	}
	out := make([]environment.Message, len(list))
	for i, m := range list {
		out[i] = environment.Message{Role: m.Role, Content: s.text(m.Blocks)}
	}
	return out, nil
}

// tools asks for the tools of this session.
func (s *session) tools(ctx context.Context) ([]toolcall.Tool, error) {
	w := s.world
	var answer struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		Terminal *terminal `json:"terminal_tool"`
	}
	err := w.client.ask(ctx, http.MethodGet, w.route("/task_tools"), s.id, nil, &answer)
	var missing *statusError
	if errors.As(err, &missing) && missing.code == http.StatusNotFound {
		err = w.client.ask(ctx, http.MethodGet, w.route("/tools"), s.id, nil, &answer)
	}
	if err != nil {
		return nil, err
	}
	s.terminal = answer.Terminal
	tools := make([]toolcall.Tool, len(answer.Tools))
	for i, t := range answer.Tools {
		tools[i] = toolcall.Tool{Name: t.Name, Description: t.Description, Parameters: t.Schema}
	}
	if len(tools) == 0 && s.terminal == nil {
		return nil, errors.New("/task_tools: the environment has no tool")
	}
	return tools, nil
}

// text is what the model reads of blocks.
func (s *session) text(blocks []block) string {
	var parts []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			parts = append(parts, b.Text)
		case "reasoning":
			parts = append(parts, "<think>"+b.Text+"</think>")
		case "tool_call":
			call, err := json.Marshal(map[string]any{"name": b.Name, "arguments": b.Input})
			if err == nil {
				parts = append(parts, "<tool_call>\n"+string(call)+"\n</tool_call>")
			}
		case "tool_result":
			parts = append(parts, toolcall.Response([]string{s.text(b.Blocks)}))
		default:
			s.world.images.Do(func() {
				s.world.log("warn", "the environment shows images, of which the model reads only that they are there")
			})
			parts = append(parts, "["+b.Type+" "+b.MimeType+"]")
		}
	}
	return strings.Join(parts, "\n")
}

// Step plays one turn.
func (s *session) Step(ctx context.Context, said environment.Completion) (environment.Step, error) {
	calls, err := toolcall.Parse(said.Text)
	if err != nil {
		return s.invalid(err.Error()), nil
	}
	if len(calls) == 0 {
		return s.plain(ctx, said.Text)
	}
	var all environment.Step
	var results []string
	for _, c := range calls {
		if s.terminal != nil && c.Name == s.terminal.Name { // hidden from the model
			c.Name += " (no tool)"
		}
		step, err := s.call(ctx, c)
		if err != nil {
			return all, s.world.server.Failed(err)
		}
		results = append(results, step.Messages[0].Content)
		all.Reward += step.Reward
		all.Invalid = all.Invalid || step.Invalid
		if all.Done = step.Done; all.Done {
			break
		}
	}
	if all.Invalid {
		all.Reward += s.world.config.InvalidActionReward
	}
	all.Messages = []environment.Message{{Role: "user", Content: toolcall.Response(results)}}
	return all, nil
}

// plain plays a turn without a tool call.
func (s *session) plain(ctx context.Context, text string) (environment.Step, error) {
	if s.terminal == nil {
		if s.world.config.NoToolCall == "continue" {
			return s.invalid("an answer must hold a tool call"), nil
		}
		return environment.Step{Done: true}, nil
	}
	input := map[string]any{}
	if s.terminal.Arg != nil {
		input[*s.terminal.Arg] = text
	}
	step, err := s.call(ctx, toolcall.Call{Name: s.terminal.Name, Arguments: input})
	if err == nil && step.Invalid {
		err = fmt.Errorf("the terminal tool %s refuses an answer: %s", s.terminal.Name, step.Messages[0].Content)
	}
	if err != nil {
		return environment.Step{}, s.world.server.Failed(err)
	}
	step.Done = true
	return step, nil
}

// invalid is the answer to a turn that is no action.
func (s *session) invalid(why string) environment.Step {
	return environment.Step{Messages: []environment.Message{{Role: "user", Content: "That is no valid action: " + why}},
		Reward: s.world.config.InvalidActionReward, Invalid: true}
}

// call calls one tool. What the model has done wrong is its answer; the reward for it is added once a turn.
func (s *session) call(ctx context.Context, c toolcall.Call) (environment.Step, error) {
	within, cancel := context.WithTimeoutCause(ctx, s.world.config.ToolTimeout,
		fmt.Errorf("the tool %s ran longer than tool_timeout = %s", c.Name, s.world.config.ToolTimeout))
	defer cancel()
	text, _, err := s.world.client.stream(within, s.world.route("/call"), s.id, map[string]any{"name": c.Name,
		"input": c.Arguments})
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = context.Cause(within)
		}
		return environment.Step{}, err
	}
	var answer struct {
		OK     *bool  `json:"ok"`
		Error  string `json:"error"`
		Reason string `json:"reason"`
		Output *struct {
			Blocks   []block  `json:"blocks"`
			Reward   *float64 `json:"reward"`
			Finished bool     `json:"finished"`
		} `json:"output"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.OK == nil || *answer.OK && answer.Output == nil {
		return environment.Step{}, fmt.Errorf("/call: want the result of a tool, got %s", brief([]byte(text)))
	}
	var step environment.Step
	if !*answer.OK {
		if answer.Reason == "name_collision" || answer.Reason == "episode_finished" {
			return step, fmt.Errorf("/call of %s: %s", c.Name, answer.Error)
		}
		step.Messages, step.Invalid = s.reads(answer.Error), true
		return step, nil
	}
	step.Messages, step.Done = s.reads(s.text(answer.Output.Blocks)), answer.Output.Finished
	if answer.Output.Reward != nil {
		step.Reward = *answer.Output.Reward
	}
	return step, nil
}

// reads makes a message of a text, which may be too long.
func (s *session) reads(text string) []environment.Message {
	return []environment.Message{{Role: "user", Content: environment.Shorten(text,
		int(s.world.config.MaxObservationChars))}}
}

// Close deletes the session.
func (s *session) Close(ctx context.Context) {
	s.closed.Do(func() {
		if s.stop != nil {
			s.stop()
			s.done.Wait()
		}
		if s.id != "" {
			// The server forgets a session without pings by itself.
			_ = s.world.client.once(ctx, http.MethodPost, "/delete", s.id, nil, nil)
			_ = s.world.client.once(ctx, http.MethodPost, "/delete_session", s.id, nil, nil)
		}
		if s.world.places != nil {
			s.world.places.Release(1)
		}
	})
}
