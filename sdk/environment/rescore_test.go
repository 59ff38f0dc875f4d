package environment

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// answers is an environment whose tasks can be restored; the Data of a task is an answer.
type answers struct{}

func (answers) Next(context.Context) (Task, error) { return Task{}, EOF }

func (answers) Score(_ context.Context, t Task, c Completion) (float64, error) {
	if c.Text == "" {
		return 0, errors.New("it is empty")
	}
	return float64(strings.Count(c.Text, t.Data.(string))), nil
}

func (answers) Restore(_ context.Context, t Task, data json.RawMessage) (Task, error) {
	return RestoreData[string](t, data)
}

// unencodable cannot be recorded.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { return nil, errors.New("it is a connection") }

func rollsOf(env Environment) *single {
	r := &single{env: env, stages: &stages{}, step: &atomic.Int64{}, address: "environment.answers.a"}
	r.step.Store(7)
	return r
}

// What is recorded of a task becomes the same task again.
func TestATaskIsRestored(t *testing.T) {
	t.Parallel()
	template := Template{Tools: json.RawMessage(`[{"a":1}]`)}
	said := []Message{{Role: "system", Content: "count"}, {Role: "user", Content: "a?"}}
	for name, task := range map[string]Task{
		"text":         {Prompt: "a?", Data: "a", Expected: "aa"},
		"conversation": {Messages: said, Data: "a", Template: template},
	} {
		messages, err := json.Marshal(task.conversation())
		if err != nil {
			t.Fatal(err)
		}
		got, step, err := restored(sdk.RecordedGroup{Task: rollsOf(answers{}).recorded(task), Messages: messages,
			Expected: task.Expected})
		if err != nil || step != 7 || string(got.data) != `"a"` {
			t.Fatalf("%s: %+v, step %d, %v", name, got, step, err)
		}
		if kept := rollsOf(answers{}).recorded(task); !strings.Contains(string(kept), `"environment":"environment.answers.a"`) {
			t.Errorf("%s: the block is not recorded: %s", name, kept)
		}
		got.task.Data = task.Data
		if !reflect.DeepEqual(got.task, task) {
			t.Errorf("%s: restored as %+v", name, got.task)
		}
	}
	if got := rollsOf(struct{ Environment }{}).recorded(Task{Prompt: "a?"}); got != nil {
		t.Errorf("of an environment that restores nothing %s is recorded", got)
	}
}

func TestATaskThatCannotBeRestored(t *testing.T) {
	t.Parallel()
	messages := json.RawMessage(`[{"role":"user","content":"a?"}]`)
	r := rollsOf(answers{})
	for name, c := range map[string]struct {
		task     json.RawMessage
		messages json.RawMessage
		want     string
	}{
		"no JSON":     {r.recorded(Task{Prompt: "a?", Data: unencodable{}}), messages, "it is a connection"},
		"a function":  {r.recorded(Task{Prompt: "a?", Data: func() {}}), messages, "json: unsupported type: func()"},
		"too large":   {r.recorded(Task{Prompt: "a?", Data: strings.Repeat("a", MaxTaskData)}), messages, tooLargeData},
		"none":        {nil, messages, "what its scorer was given is not recorded"},
		"no messages": {r.recorded(Task{Prompt: "a?", Data: "a"}), nil, "its conversation is not recorded"},
		"too few":     {json.RawMessage(`{"v":1,"messages":2,"data":"a"}`), messages, "its conversation is not recorded"},
		"newer": {json.RawMessage(`{"v":2,"data":"a"}`), messages,
			"its task has format version 2, and this environment reads 1"},
		"other data": {json.RawMessage(`{"v":1,"data":[1]}`), messages,
			"its data is of another type now: json: cannot unmarshal array into Go value of type string"},
	} {
		got := r.rescore(t.Context(), sdk.RecordedGroup{Task: c.task, Messages: c.messages,
			Completions: []sdk.RecordedCompletion{{Text: "a"}}})
		if got.Unable != c.want || got.Completions != nil {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// A recorded group is scored as one that was just sampled: a score that fails costs its completion alone.
func TestARecordedGroupIsScored(t *testing.T) {
	t.Parallel()
	r := rollsOf(answers{})
	got := r.rescore(t.Context(), sdk.RecordedGroup{Task: r.recorded(Task{Prompt: "a?", Data: "a"}),
		Messages:    json.RawMessage(`[{"role":"user","content":"a?"}]`),
		Completions: []sdk.RecordedCompletion{{Text: "banana"}, {}, {Text: "b"}}})
	if len(got.Completions) != 3 || got.Completions[0].Score == nil || *got.Completions[0].Score != 3 ||
		got.Completions[1].Score != nil || got.Completions[1].Failed != "it is empty" || *got.Completions[2].Score != 0 {
		t.Errorf("%+v", got)
	}
}

// The text that stopped an answer stands in its conversation, and by itself, so that the answer is known without it.
func TestTheStopTextIsRecorded(t *testing.T) {
	t.Parallel()
	s := &sample{prompt: []int{1}, completions: []Completion{{Text: "a", Stop: "\n", Finish: "stop", Tokens: []int{2},
		Logprobs: []float64{-1}}}, spans: [][]trajectory.VersionSpan{nil}}
	s.completions[0].metrics = newMetrics()
	g, err := s.rolled(Task{Prompt: "a?"}, []Scored{{Score: 1}}).group(Task{Prompt: "a?"}, sampling{})
	if err != nil || g.Overrides[0][trajectory.OverrideStop] != "\n" || !strings.Contains(string(g.Messages), `"a\n"`) {
		t.Errorf("recorded %v, %s (%v)", g.Overrides, g.Messages, err)
	}
}
