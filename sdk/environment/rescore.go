package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/recipe-rl/recipe/sdk"
)

// Restorer is an Environment whose recorded tasks can be scored again. What json.Marshal makes of Task.Data is recorded
// with each group; where it is an error or too large, the group is recorded without it and cannot be scored again.
type Restorer interface {
	// Restore returns a recorded task with its Data, as Score expects it. Its other fields are set.
	Restore(ctx context.Context, task Task, data json.RawMessage) (Task, error)
}

// RestoreData is a Restore of an environment whose tasks have a T as their Data, which JSON holds without a loss.
func RestoreData[T any](task Task, data json.RawMessage) (Task, error) {
	var restored T
	if err := json.Unmarshal(data, &restored); err != nil {
		return task, fmt.Errorf("its data is of another type now: %w", err)
	}
	task.Data = restored
	return task, nil
}

// MaxTaskData is how many bytes of JSON the Data of a recorded task may have.
const MaxTaskData = 64 << 10

// recordedTask is what is recorded of a task beside the conversation: the field task of a group.
type recordedTask struct {
	V           int    `json:"v"`                     // 1
	Environment string `json:"environment,omitempty"` // address of its block
	// Messages is with how many messages each conversation of the group began; 0: with a text, which stands in the first.
	Messages int             `json:"messages"`
	Step     int64           `json:"step,omitempty"` // that the trainer had made
	Data     json.RawMessage `json:"data,omitempty"`
	Omitted  string          `json:"omitted,omitempty"` // why Data is missing
	*Template
}

// taskVersion is the v of a recordedTask.
const taskVersion = 1

// recorded is what is recorded of a task; nil: its environment cannot score it again.
func (r *single) recorded(task Task) json.RawMessage {
	if _, ok := any(r.env).(Restorer); !ok {
		return nil
	}
	out := recordedTask{V: taskVersion, Environment: r.address, Messages: len(task.Messages), Step: r.step.Load()}
	if task.Template.Tools != nil || task.Template.Arguments != nil {
		out.Template = &task.Template
	}
	data, err := json.Marshal(task.Data)
	var refused *json.MarshalerError
	switch {
	case errors.As(err, &refused): // its own words alone
		out.Omitted = refused.Unwrap().Error()
	case err != nil:
		out.Omitted = err.Error()
	case len(data) > MaxTaskData:
		out.Omitted = tooLargeData
	default:
		out.Data = data
	}
	text, err := json.Marshal(out)
	if err != nil { // a template that is no JSON
		return nil
	}
	return text
}

// tooLargeData has no number in it: equal reasons are counted together.
var tooLargeData = fmt.Sprintf("its data has more than %d KiB", MaxTaskData>>10)

// rescoring is a runner whose environment can score what is recorded.
type rescoring[C Config, E any] struct{ *runner[C, E] }

// evaluatedRescoring is one with a held-out set, too.
type evaluatedRescoring[C Config, E any] struct{ *evaluated[C, E] }

var (
	_ sdk.Rescorer = (*rescoring[Settings, Environment])(nil)
	_ sdk.Rescorer = (*evaluatedRescoring[Settings, Environment])(nil)
)

// Rescore implements sdk.Rescorer.
func (r *rescoring[C, E]) Rescore(ctx context.Context, g sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	return r.rescore(ctx, g)
}

// Rescore implements sdk.Rescorer.
func (r *evaluatedRescoring[C, E]) Rescore(ctx context.Context, g sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	return r.rescore(ctx, g)
}

// rescore scores a recorded group, as the environment scores what it has just sampled.
func (r *runner[C, E]) rescore(ctx context.Context, g sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	r.mu.Lock()
	rolls, _ := r.roller.(*single)
	env := r.env
	r.mu.Unlock()
	if env == nil || rolls == nil {
		return sdk.RescoredGroup{}, errors.New("the environment does not run")
	}
	out := rolls.rescore(ctx, g)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if env, ok := any(*env).(Monitored); ok {
		select {
		case <-env.Failed():
			return out, env.Err()
		default:
		}
	}
	return out, nil
}

// rescore scores one recorded group.
func (r *single) rescore(ctx context.Context, g sdk.RecordedGroup) (out sdk.RescoredGroup) {
	task, step, err := restored(g)
	if err == nil {
		task.task, err = any(r.env).(Restorer).Restore(ctx, task.task, task.data)
	}
	if task.task.Release != nil {
		defer task.task.Release()
	}
	if err != nil {
		return sdk.RescoredGroup{Unable: err.Error()}
	}
	completions := make([]Completion, len(g.Completions))
	for i, c := range g.Completions {
		completions[i] = Completion{Text: c.Text, Finish: c.Finish, Stop: c.Stop, Tokens: c.Tokens, Logprobs: c.Logprobs}
		if len(c.Messages) > 0 && json.Unmarshal(c.Messages, &completions[i].Messages) != nil {
			return sdk.RescoredGroup{Unable: "its conversations are not recorded as messages"}
		}
	}
	for i, s := range r.scoreAt(ctx, task.task, completions, step) {
		one := sdk.RescoredCompletion{}
		if s.Err != nil {
			one.Failed = brief([]byte(s.Err.Error()))
		} else {
			one.Score, one.Metrics = &s.Score, completions[i].metrics.all()
		}
		out.Completions = append(out.Completions, one)
	}
	return out
}

// restorable is a task that is recorded, and its data.
type restorable struct {
	task Task
	data json.RawMessage
}

// restored reads what is recorded of a task, and after how many steps of the trainer it was scored.
func restored(g sdk.RecordedGroup) (restorable, int64, error) {
	var r recordedTask
	if err := json.Unmarshal(g.Task, &r); err != nil || r.V < 1 {
		return restorable{}, 0, errors.New("what its scorer was given is not recorded")
	}
	if r.V > taskVersion {
		return restorable{}, 0, fmt.Errorf("its task has format version %d, and this environment reads %d", r.V, taskVersion)
	}
	if r.Data == nil {
		return restorable{}, 0, errors.New(r.Omitted)
	}
	var said []Message
	if err := json.Unmarshal(g.Messages, &said); err != nil || len(said) == 0 || r.Messages > len(said) {
		return restorable{}, 0, errors.New("its conversation is not recorded")
	}
	out := restorable{task: Task{Expected: g.Expected}, data: r.Data}
	if r.Messages == 0 {
		out.task.Prompt = said[0].Content
	} else {
		out.task.Messages = slices.Clone(said[:r.Messages])
	}
	if r.Template != nil {
		out.task.Template = *r.Template
	}
	return out, r.Step, nil
}
