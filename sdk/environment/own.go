package environment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// Roller is an environment that makes its rollouts itself: it asks the policy as often as it likes, as one agent or as
// several, and scores them. The tokens that are trained on are those that were sampled, whatever it does between.
type Roller interface {
	// Next returns the next task; EOF says that there are no more. All rollouts of a group are of one task.
	Next(ctx context.Context) (Task, error)
	// Rollout makes one rollout of a task. It scores every conversation that it began with the policy. An error that is an
	// InfraFailed lets the rollout begin again; any other one leaves the rollout out of its group, because an invented
	// score would train the model wrongly. It is called from several goroutines at once.
	Rollout(ctx context.Context, task Task, policy *Policy) error
}

// RolloutSettings are the attributes that environments with rollouts of their own have besides Settings.
type RolloutSettings struct {
	MaxTurns        int64         `recipe:"max_turns" default:"16" min:"1" unit:"turns" doc:"Answers of the model in one conversation at most"`
	RolloutTimeout  time.Duration `recipe:"rollout_timeout" default:"30m" min:"1s" doc:"How long one rollout may take, waiting for inference included; then it counts as infra_failed"`
	RolloutAttempts int64         `recipe:"rollout_attempts" default:"3" min:"1" doc:"How often a rollout is begun whose environment fails (infra_failed), before it is left out of its group (min_rollouts)"`
}

func (s RolloutSettings) rollouts() RolloutSettings { return s }

// Called through RolloutConfig only, which generic code asks for.
var _ = RolloutSettings.rollouts

// RolloutConfig is the configuration of an environment with rollouts of its own: a struct that embeds Settings and
// RolloutSettings.
type RolloutConfig interface {
	Config
	rollouts() RolloutSettings
}

// DefineRollouts is Define for an environment with rollouts of its own.
func DefineRollouts[C RolloutConfig, E Roller](
	name, summary string, open func(ctx context.Context, setup Setup[C]) (E, error), opts ...sdk.Option,
) *sdk.Definition {
	return New(name, summary, factory(open, rollsItself[C, E], false), declared(opts)...)
}

// TryDefineRollouts is TryDefine for an environment with rollouts of its own.
func TryDefineRollouts[C RolloutConfig, E Roller](
	name, summary string, open func(ctx context.Context, setup Setup[C]) (E, error), opts ...sdk.Option,
) (*sdk.Definition, error) {
	return define.Try(kind.Environment, name, summary, outputs.Environment{}, factory(open, rollsItself[C, E], false),
		run[C], declared(opts)...)
}

func rollsItself[C RolloutConfig, E Roller](env E, c C, with rolling) roller {
	return &owns{env: env, settings: c.rollouts(), rolling: with, bridge: newBridge(with.ask)}
}

// Policy is what one rollout asks. Its methods may be called from several goroutines at once.
type Policy struct {
	talk     talk
	plan     sampling
	limits   limits
	maxTurns int
	sessions *sampler // of the gateway

	mu     sync.Mutex
	chats  []*Chat    // in the order in which they were begun
	opened []*Session // in the order in which they were opened
	long   *tooLong   // a conversation began with more than fits
}

// Chat is the conversation of one agent with the policy: one sequence that is trained on.
type Chat struct {
	Agent string

	policy *Policy
	mu     sync.Mutex
	s      sequence
	prompt string    // begins the conversation as it is; empty: messages do
	said   []Message // since the last answer
	scored bool
	// beside the score; nil: none so far
	metrics *metrics
	full    bool // nothing more fits
}

// Answering changes one answer.
type Answering struct {
	MaxTokens int64    `json:"max_tokens"` // 0: that of the block
	Stop      []string `json:"stop"`       // nil: that of the block
}

// Chat returns the conversation of an agent, which it begins when there is none. Each agent has one in every rollout;
// the groups of two agents are apart, because their scores cannot be compared.
func (p *Policy) Chat(agent string) *Chat {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.chats {
		if c.Agent == agent {
			return c
		}
	}
	c := &Chat{Agent: agent, policy: p}
	p.chats = append(p.chats, c)
	return c
}

// note keeps that a conversation began with more than fits: a Roller in another process returns the text of an error
// only.
func (p *Policy) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	errors.As(err, &p.long)
}

// reason is why a rollout failed: what was noted, else the error that it returned.
func (p *Policy) reason(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.long != nil {
		return p.long
	}
	return err
}

// Prompt begins the conversation with a text that is sent as it is. Such a conversation has one answer.
func (c *Chat) Prompt(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.turns > 0 || len(c.said) > 0 || c.prompt != "" {
		return errors.New("a text without roles can only begin a conversation; use messages")
	}
	c.prompt = text
	return nil
}

// Say adds what the model reads next.
func (c *Chat) Say(messages ...Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prompt != "" {
		return errors.New("the conversation began with a text without roles, which has one answer; begin it with messages")
	}
	c.said = append(c.said, messages...)
	return nil
}

// Answer lets the model answer what was said. When the conversation has no room for an answer, or has had max_turns of
// them, the completion is empty and its Finish is "length".
func (c *Chat) Answer(ctx context.Context, a Answering) (Completion, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prompt == "" && len(c.said) == 0 {
		return Completion{}, errors.New("the model got no message since its last answer; say something first")
	}
	if c.full || c.s.turns >= c.policy.maxTurns || c.prompt != "" && c.s.turns > 0 {
		c.s.cut = true
		return Completion{Finish: "length"}, nil
	}
	plan := c.policy.plan.seededForAgent(c.Agent)
	if a.MaxTokens > 0 {
		plan.MaxTokens = a.MaxTokens
	}
	if a.Stop != nil {
		plan.Stop = a.Stop
	}
	q := question{messages: c.said}
	if c.prompt != "" {
		q = question{text: c.prompt}
	}
	got, err := c.policy.talk.answer(ctx, &c.s, q, plan, c.policy.limits)
	if err != nil {
		c.policy.note(err)
		return Completion{}, err
	}
	if got == nil {
		c.full = true
		return Completion{Finish: "length"}, nil
	}
	c.said = nil
	return *got, nil
}

// Score says how good the agent's conversation was; higher is better. Advantages, when they are not nil, hold one
// number for each token of each answer, which trains it instead of what the trainer makes of the scores.
func (c *Chat) Score(score float64, advantages [][]float64) error {
	if !trainable(score) {
		return notFinite(score)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.score, c.scored = score, true
	if advantages == nil {
		return nil
	}
	made, err := c.s.spread(advantages)
	c.s.advantages = made
	return err
}

// Metric records a number beside the score, as Completion.Metric does.
func (c *Chat) Metric(name string, value float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.metrics == nil {
		c.metrics = newMetrics()
		c.s.metrics = c.metrics.values
	}
	c.metrics.set(name, value)
	return c.metrics.err
}

// spread puts the advantages of answers where their tokens are; 0 stands on what the model has read.
func (s *sequence) spread(advantages [][]float64) ([]float64, error) {
	if len(advantages) != s.turns {
		return nil, fmt.Errorf("advantages were given for %s of %d", count(len(advantages), "answer"), s.turns)
	}
	out := make([]float64, len(s.tokens))
	for i, answer := range s.answers {
		if got, want := len(advantages[i]), answer.End-answer.Start; got != want {
			return nil, fmt.Errorf("answer %d has %d tokens and %s", i+1, want, count(got, "advantage"))
		}
		for j, a := range advantages[i] {
			if !trainable(a) {
				return nil, fmt.Errorf("an advantage of answer %d is %v; expected a number between %g and %g", i+1,
					a, -largest, largest)
			}
			out[answer.Start+j] = a
		}
	}
	return out, nil
}

// owns makes the rollouts of an environment that makes its own.
type owns struct {
	env      Roller
	settings RolloutSettings
	bridge   *bridge
	rolling
}

func (r *owns) next(ctx context.Context) (Task, error) { return r.env.Next(ctx) }

// roll makes the rollouts of one group at once.
func (r *owns) roll(ctx, _ context.Context, task Task, p sampling, l limits) (*rolled, error) {
	made := make([][]sequence, p.N)
	errs := make([]error, p.N)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			one := p.seededFor(int64(i))
			errs[i] = r.attempts(ctx, r.settings.RolloutAttempts, "a rollout", func() (err error) {
				made[i], err = r.once(ctx, task, one, l)
				return err
			})
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if l.every {
		return allOf(made, errs), nil
	}
	var refused *refusal
	for _, err := range errs {
		if errors.As(err, &refused) { // no repetition changes it; a tooLong is one as well
			return nil, err
		}
	}
	return gathered(made, errs, l.least)
}

// allOf holds every rollout of an evaluation: of one that failed what there is of it, with the reason.
func allOf(made [][]sequence, errs []error) *rolled {
	out := &rolled{why: together(errs, "rollouts")}
	for i, list := range made {
		if errs[i] == nil {
			out.sequences = append(out.sequences, list...)
			continue
		}
		failed := sequence{}
		if len(list) > 0 {
			failed = list[0]
		}
		failed.failed = errs[i]
		out.sequences = append(out.sequences, failed)
	}
	out.mask()
	return out
}

// gathered is the group of rollouts, of which some may have failed: each agent's group has a place for them.
func gathered(made [][]sequence, errs []error, least int) (*rolled, error) {
	out := &rolled{}
	ok := 0
	for i, list := range made {
		if errs[i] == nil {
			out.sequences, ok = append(out.sequences, list...), ok+1
		}
	}
	err := together(errs, "rollouts")
	if ok < least || ok == 0 && err != nil {
		return nil, err
	}
	if err := out.complete(ok); err != nil {
		return nil, err
	}
	for _, part := range out.byAgent() {
		for _, failed := range errs {
			if failed != nil {
				out.sequences = append(out.sequences, part.sequences[0].placeholder(failed))
			}
		}
	}
	out.mask()
	out.why = err
	return out, nil
}

// complete keeps the agents that have a conversation in each of so many rollouts: the scores of a group are compared
// with each other. An agent whose turn did not come in one of them has no group. It is an error when none is left.
func (r *rolled) complete(want int) error {
	var kept []sequence
	var err error
	for _, part := range r.byAgent() {
		if got := part.rollouts(); got != want {
			err = fmt.Errorf("the agent %q has a conversation in %d of %d rollouts, and the scores of a group are compared "+
				"with each other", part.sequences[0].agent, got, want)
			continue
		}
		kept = append(kept, part.sequences...)
	}
	if len(kept) == 0 {
		return &unscored{text: err.Error(), causes: []error{err}}
	}
	r.sequences = kept
	return nil
}

// once makes one rollout within its time, and returns the sequences of its agents.
func (r *owns) once(ctx context.Context, task Task, p sampling, l limits) ([]sequence, error) {
	p.N = 1
	within, cancel := context.WithTimeout(ctx, r.settings.RolloutTimeout)
	defer cancel()
	policy := &Policy{talk: talk{ask: r.ask, bridge: r.bridge, stages: r.stages}, plan: p, limits: l,
		maxTurns: int(r.settings.MaxTurns), sessions: r.sampler}
	end := r.stages.act.begin()
	err := r.env.Rollout(within, task, policy)
	end()
	if forgot := policy.forget(ctx); forgot != nil {
		r.log("warn", fmt.Sprintf("delete a session: %v", forgot))
	}
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		err = &InfraFailed{Err: fmt.Errorf("the rollout took longer than rollout_timeout = %s: %w", r.settings.RolloutTimeout,
			err)}
	}
	if err != nil {
		return nil, policy.reason(err)
	}
	return policy.sequences()
}

// sequences are what the rollout leaves to train on.
func (p *Policy) sequences() ([]sequence, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []sequence
	for _, c := range p.chats {
		s, err := c.sequence()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	for _, opened := range p.opened {
		parts, err := opened.sequences()
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	if len(out) == 0 {
		return nil, errors.New("the rollout has asked the policy nothing")
	}
	return out, nil
}

func (c *Chat) sequence() (sequence, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.s.turns == 0:
		return sequence{}, fmt.Errorf("the model has given no answer as agent %q", c.Agent)
	case !c.scored:
		return sequence{}, fmt.Errorf("the conversation of agent %q has no score", c.Agent)
	}
	c.s.agent = c.Agent
	return c.s, nil
}
