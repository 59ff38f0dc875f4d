package script

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/sdk/environment"
)

// Rollout implements environment.Roller: the worker plays, and asks back for the model's answers.
func (p *player) Rollout(ctx context.Context, t environment.Task, policy *environment.Policy) error {
	id, end := p.began(ctx, policy)
	defer end()
	var chats []struct {
		Agent      string             `json:"agent"`
		Score      *float64           `json:"score"`
		Metrics    map[string]float64 `json:"metrics"`
		Advantages [][]float64        `json:"advantages"`
	}
	if err := p.call(ctx, "rollout", map[string]any{"task": numberOf(t), "rollout": id}, &chats); err != nil {
		return p.explain(err)
	}
	for _, c := range chats {
		if c.Score == nil {
			return fmt.Errorf("rollout returned no score for agent %q: return a number, a dict with one for each agent, "+
				"or call score of each chat", c.Agent)
		}
		if err := policy.Chat(c.Agent).Score(*c.Score, c.Advantages); err != nil {
			return fmt.Errorf("agent %q: %w", c.Agent, err)
		}
		for name, v := range c.Metrics {
			if err := policy.Chat(c.Agent).Metric(name, v); err != nil {
				return fmt.Errorf("agent %q: %w", c.Agent, err)
			}
		}
	}
	return nil
}

// rollout is one that is under way.
type rollout struct {
	ctx    context.Context
	policy *environment.Policy
}

// began notes a rollout, by whose number the worker asks; the function that it returns notes its end.
func (w *worker) began(ctx context.Context, policy *environment.Policy) (id uint64, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastRollout++
	id = w.lastRollout
	w.rollouts[id] = rollout{ctx, policy}
	return id, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.rollouts, id)
	}
}

// asked is what a rollout wants: an answer of the model to what was said.
type asked struct {
	Rollout  uint64                `json:"rollout"`
	Agent    string                `json:"agent"`
	Prompt   string                `json:"prompt"`
	Messages []environment.Message `json:"messages"`
	environment.Answering
}

// answer lets the model answer, and sends what it said to the worker.
func (w *worker) answer(conn *jsonrpc2.Conn, r *jsonrpc2.Request) {
	result, err := w.sample(r)
	if err != nil {
		refused := &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
		_ = conn.ReplyWithError(context.Background(), r.ID, refused)
		return
	}
	_ = conn.Reply(context.Background(), r.ID, result)
}

func (w *worker) sample(r *jsonrpc2.Request) (any, error) {
	var q asked
	if err := json.Unmarshal(*r.Params, &q); err != nil {
		return nil, fmt.Errorf("read a request of a rollout: %w", err)
	}
	w.mu.Lock()
	under, ok := w.rollouts[q.Rollout]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("rollout %d has ended", q.Rollout)
	}
	chat := under.policy.Chat(q.Agent)
	if q.Prompt != "" {
		if err := chat.Prompt(q.Prompt); err != nil {
			return nil, err
		}
	}
	if len(q.Messages) > 0 {
		if err := chat.Say(q.Messages...); err != nil {
			return nil, err
		}
	}
	got, err := chat.Answer(under.ctx, q.Answering)
	if err != nil {
		return nil, err
	}
	return completion(got), nil
}
