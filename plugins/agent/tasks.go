package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/taskfile"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// task is one line of the file of tasks.
type task struct {
	raw     json.RawMessage
	members map[string]json.RawMessage
	line    int              // or which of the folders it is
	folder  *taskfolder.Task // nil: it is a line of a file
}

// text is a member as an argument: a text as it is, anything else as JSON.
func (t *task) text(name string) (string, bool) {
	raw, ok := t.members[name]
	if !ok {
		return "", false
	}
	var text *string // of null it stays nil
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, true
	}
	return string(raw), true
}

// answerMember is the member that only the reward function gets.
const answerMember = "answer"

// shown is the task as its program may read it.
func (t *task) shown() ([]byte, error) {
	if _, has := t.members[answerMember]; !has {
		return t.raw, nil
	}
	members := maps.Clone(t.members)
	delete(members, answerMember)
	out, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("write a task without its answer: %w", err)
	}
	return out, nil
}

// name is the task for people.
func (t *task) name() string {
	for _, member := range []string{"id", "name", "instruction", "prompt", "question"} {
		if text, ok := t.text(member); ok {
			return text
		}
	}
	return string(t.raw)
}

// task is as the kit takes it. The right answer is recorded for people.
func (t *task) task() environment.Task {
	expected, _ := t.text(answerMember)
	return environment.Task{Prompt: t.name(), Expected: expected, Data: t}
}

// perTask is a text with members of the task, which becomes an argument.
type perTask struct{ name, text string }

func (c Program) perTask() []perTask {
	if c.Agent != nil {
		out := []perTask{{"instruction", c.instruction()}}
		return append(out, elements("agent_args", c.AgentArgs)...)
	}
	return elements("command", c.Command)
}

func elements(of string, texts []string) []perTask {
	out := make([]perTask, len(texts))
	for i, text := range texts {
		out[i] = perTask{fmt.Sprintf("element %d of %s", i+1, of), text}
	}
	return out
}

// tasks are those of a file.
type tasks struct {
	list, held []*task

	mu    sync.Mutex
	given int64
}

func readTasks(c Config, recipeDir string) (*tasks, error) {
	list, held, err := taskfile.Read(c.Tasks, recipeDir, c.EvalTasks, c.Seed, func(line int, text []byte) (*task, error) {
		one := &task{raw: text, line: line}
		if err := json.Unmarshal(text, &one.members); err != nil || one.members == nil {
			return nil, fmt.Errorf("want a JSON object, got %.80q", text)
		}
		for _, p := range c.perTask() {
			if problem := one.cannotFill(p.text); problem != "" {
				return nil, fmt.Errorf("no program can be started with it: %s %s", p.name, problem)
			}
		}
		return one, nil
	})
	if err != nil {
		return nil, err
	}
	return &tasks{list: list, held: held}, nil
}

func (t *tasks) next() environment.Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given++
	return t.list[(t.given-1)%int64(len(t.list))].task()
}

func (t *tasks) skip(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given += n
}

// maxArgument bounds an argument on Linux.
const maxArgument = 128<<10 - 1

// cannotFill explains why no program can be started with the argument; empty: one can.
func (t *task) cannotFill(argument string) string {
	filled, missing := t.fill(argument)
	switch {
	case missing != "":
		return fmt.Sprintf("uses the member %q, which the task does not have", missing)
	case strings.ContainsRune(filled, 0):
		return "would have a NUL character, which no argument can have"
	case len(filled) > maxArgument:
		return fmt.Sprintf("would have %d bytes, and an argument has %d at most: let the program read the file that "+
			"RECIPE_TASK names", len(filled), maxArgument)
	}
	return ""
}

// fill puts members of the task into an argument; missing is the first one that the task does not have.
func (t *task) fill(argument string) (filled, missing string) { return spec.FillTask(argument, t.text) }
