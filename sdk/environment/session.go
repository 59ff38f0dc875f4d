package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/session"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Session is the access of a program that knows nothing of training: a base URL and a key. The gateway of the inference
// block keeps the program's calls as tokens.
type Session struct {
	BaseURL string // for clients of OpenAI; it ends in /v1
	Key     string // the clients' API key, for this session alone

	agent  string
	id     string
	client *sampler
	parts  bool // the trainer takes several sequences
	found  []sequence
	ended  bool
	scored bool
}

// SessionRecord is what a program did with its session.
type SessionRecord struct {
	Messages  []Message // of the sequence with the most sampled tokens, the answers of the model among them
	Calls     int       // answered
	Sampled   int       // tokens of all calls
	Sequences int       // 1, where each call continued the one before
	Untrained int       // sampled tokens that are not trained on
	Truncated string    // which limit of the budget was reached; empty: none
	Finish    string    // why the last answer of the conversation ended: stop, length or tool_calls
}

// ErrNoCall is the cause of the error of a session whose program has not got one answer.
var ErrNoCall = errors.New("the program made no call that was answered: does it use the base URL and the key of its " +
	"environment variables?")

// SessionSettings are the attributes of environments whose rollouts are programs with a session each.
type SessionSettings struct {
	Budget          BudgetSettings `recipe:"budget,block" doc:"Limits of one rollout. A program that reaches one gets an error that it does not retry; its reward counts"`
	RolloutAttempts int64          `recipe:"rollout_attempts" default:"3" min:"1" doc:"How often a rollout is begun that fails for another reason than the model (infra_failed), before it is left out of its group (min_rollouts)"`
}

// BudgetSettings limit one rollout.
type BudgetSettings struct {
	Turns   int64 `recipe:"turns" default:"40" min:"1" max:"1024" unit:"calls" doc:"Answers of the model"`
	Tokens  int64 `recipe:"tokens" default:"0" min:"0" unit:"tokens" doc:"Sampled tokens of all answers together; 0: no limit. One answer has max_tokens at most, and a prompt with its answer the model's context"`
	Seconds int64 `recipe:"seconds" default:"900" min:"1" unit:"seconds" doc:"How long the program may run, waiting for the model included. Then it is ended"`
}

// longestRollout bounds a rollout whose parts have limits of their own.
const longestRollout = 24 * time.Hour

func (s SessionSettings) rollouts() RolloutSettings {
	return RolloutSettings{MaxTurns: s.Budget.Turns, RolloutTimeout: longestRollout, RolloutAttempts: s.RolloutAttempts}
}

// Called through RolloutConfig only, which generic code asks for.
var _ = SessionSettings.rollouts

// Session opens a session for a program. All its sequences are trained on, as parts of one rollout; with a trainer that
// takes one sequence a rollout, the one with the most sampled tokens. The session is gone when Rollout returns.
func (p *Policy) Session(ctx context.Context, agent, task string, budget BudgetSettings) (*Session, error) {
	q := session.Open{Task: brief([]byte(task)), Sampling: p.plan.session(),
		Budget: session.Budget{Turns: int(budget.Turns), Tokens: int(budget.Tokens), Context: p.limits.tokens,
			Answer: int(p.plan.MaxTokens), Seconds: float64(budget.Seconds)}}
	var opened session.Opened
	if err := p.sessions.session(ctx, http.MethodPost, "", q, &opened); err != nil {
		return nil, err
	}
	// The gateway does not know by which address it is reached from another machine.
	s := &Session{BaseURL: p.sessions.control + "/v1", Key: opened.Key, agent: agent, id: opened.ID, client: p.sessions,
		parts: p.limits.parts}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = append(p.opened, s)
	return s, nil
}

// session are the parameters in the form of a session.
func (p sampling) session() session.Sampling {
	out := session.Sampling{"temperature": p.Temperature, "top_p": p.TopP}
	if p.TopK != nil {
		out["top_k"] = float64(*p.TopK)
	}
	if p.MinP != nil {
		out["min_p"] = *p.MinP
	}
	if p.Repetition != nil {
		out["repetition_penalty"] = *p.Repetition
	}
	if p.Seed != nil {
		out["seed"] = float64(*p.Seed)
	}
	return out
}

const (
	endWithin  = 10 * time.Second // for calls of a program that has ended
	endEvery   = 50 * time.Millisecond
	askWithin  = 30 * time.Second // for one request to the gateway
	mostRecord = 1 << 30          // bytes of a session with its tokens
)

// End ends the session: the program has ended, and makes no more calls.
func (s *Session) End(ctx context.Context) (*SessionRecord, error) {
	for deadline := time.Now().Add(endWithin); ; {
		err := s.client.session(ctx, http.MethodPost, "/"+s.id+"/finish", struct{}{}, nil)
		var refused *refusal
		if err == nil {
			break
		}
		if !errors.As(err, &refused) || refused.status != http.StatusConflict || time.Now().After(deadline) {
			return nil, err
		}
		if err := pause(ctx, endEvery); err != nil { // a call is still being answered
			return nil, err
		}
	}
	var status session.Status
	if err := s.client.session(ctx, http.MethodGet, "/"+s.id, nil, &status); err != nil {
		return nil, err
	}
	best, most, all := -1, 0, 0
	for i := range status.Sequences {
		n := status.Sequences[i].Trained()
		if all += n; n > most {
			best, most = i, n
		}
	}
	switch {
	case best < 0 && status.Truncated != "": // it is so in each attempt
		return nil, &sdk.Error{Summary: "the program got no answer, because it reached a limit: " + status.Truncated,
			Remedy: "let the model take longer sequences (max_model_len), or raise the limits of budget"}
	case best < 0:
		return nil, &InfraFailed{Err: ErrNoCall}
	}
	out := &SessionRecord{Calls: status.Calls, Sampled: status.Sampled, Sequences: len(status.Sequences),
		Untrained: status.Sampled - all, Truncated: status.Truncated}
	if !s.parts {
		out.Untrained = status.Sampled - most
	}
	for i := range status.Sequences {
		if i != best && (!s.parts || status.Sequences[i].Trained() == 0) {
			continue
		}
		taken, err := s.take(&status.Sequences[i], status.Truncated != "")
		if err != nil {
			return nil, err
		}
		taken.part = len(s.found) > 0
		s.found = append(s.found, taken)
		if i == best {
			out.Messages, out.Finish = taken.conversation, taken.finish
		}
	}
	s.ended = true
	return out, nil
}

// take makes a sequence that is trained on. What is taken is checked: a gateway may be of another version.
func (s *Session) take(from *session.Sequence, truncated bool) (sequence, error) {
	n := len(from.Tokens)
	if len(from.Masks) != n || len(from.Logprobs) != n {
		return sequence{}, fmt.Errorf("the session has a sequence with %d tokens, %d masks and %d log-probabilities", n,
			len(from.Masks), len(from.Logprobs))
	}
	out := sequence{agent: s.agent, turns: len(from.Calls), sampled: from.Trained(), finish: from.Finish,
		cut: truncated || from.Finish == "length", unknown: len(from.Versions) == 0}
	for i, id := range from.Tokens {
		out.tokens = append(out.tokens, int(id))
		out.masks = append(out.masks, int(from.Masks[i]))
		out.logprobs = append(out.logprobs, float64(from.Logprobs[i]))
	}
	for _, v := range from.Versions {
		if v.Start < 0 || v.End < v.Start || v.End > n {
			return sequence{}, fmt.Errorf("the session has a version of tokens %d to %d in a sequence of %d", v.Start, v.End, n)
		}
		out.versions = joined(out.versions, &trajectory.Versions{Min: v.Version, Max: v.Version})
		out.spans = append(out.spans, trajectory.VersionSpan{Version: v.Version, Start: v.Start, End: v.End})
	}
	for i, raw := range from.Messages {
		var m Message
		if err := json.Unmarshal(raw, &m); err != nil {
			return sequence{}, fmt.Errorf("read message %d of the session: %w", i+1, err)
		}
		out.conversation = append(out.conversation, m)
		if m.Role == "assistant" {
			out.text = m.Content
		}
	}
	for _, m := range from.Masked {
		out.left = append(out.left, trajectory.MaskedSpan(m))
	}
	return out, nil
}

// Score is how good the rollout was; higher is better. Metrics are recorded beside it.
func (s *Session) Score(score float64, beside map[string]float64) error {
	switch {
	case !s.ended:
		return errors.New("a session is scored after its End")
	case !trainable(score):
		return notFinite(score)
	}
	made := newMetrics()
	for name, v := range beside {
		made.set(name, v)
	}
	for i := range s.found {
		s.found[i].score = score
	}
	s.found[0].metrics, s.scored = made.values, true
	return made.err
}

// sequences are what is trained on.
func (s *Session) sequences() ([]sequence, error) {
	if !s.scored {
		return nil, fmt.Errorf("the session of agent %q has no score", s.agent)
	}
	return s.found, nil
}

// forget deletes the sessions of a rollout, whatever became of it.
func (p *Policy) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(p.opened))
	var wg sync.WaitGroup
	for i, s := range p.opened {
		wg.Go(func() { errs[i] = s.client.session(ctx, http.MethodDelete, "/"+s.id, nil, nil) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// session asks the gateway for something about sessions.
func (s *sampler) session(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode a request about a session: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, s.control+"/recipe/v1/sessions"+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("ask for a session: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.http.Do(request)
	if err != nil {
		return &InfraFailed{Err: fmt.Errorf("ask for a session: %w", err)}
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := bounded.ReadAll(response.Body, mostRecord)
	if err != nil {
		return &InfraFailed{Err: fmt.Errorf("read a session: %w", err)}
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK && out == nil:
		return nil
	case code == http.StatusOK:
		if err := json.Unmarshal(answer, out); err != nil {
			return fmt.Errorf("read a session: %w", err)
		}
		return nil
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests:
		return &refusal{code, errorbody.Text(answer)}
	default:
		return &InfraFailed{Err: fmt.Errorf("ask for a session: HTTP %d: %s", code, errorbody.Text(answer))}
	}
}
