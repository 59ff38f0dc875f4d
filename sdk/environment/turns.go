package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// episodes makes rollouts of several turns.
type episodes struct {
	env      Episodic
	settings EpisodeSettings
	bridge   *bridge
	begins   beginnings
	rolling
}

func (r *episodes) next(ctx context.Context) (Task, error) { return r.env.Next(ctx) }

// roll plays the episodes of one group at once.
func (r *episodes) roll(ctx, _ context.Context, task Task, p sampling, l limits) (*rolled, error) {
	made := make([][]sequence, p.N)
	errs := make([]error, p.N)
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			s, err := r.play(ctx, task, p.seededFor(int64(i)), l)
			made[i], errs[i] = []sequence{s}, err
			var hopeless *noEpisode
			if errors.As(err, &hopeless) { // the others wait for the same
				giveUp(err)
			}
		})
	}
	wg.Wait()
	var hopeless *noEpisode
	if errors.As(context.Cause(ctx), &hopeless) {
		return nil, hopeless.of
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if l.every {
		return allOf(made, errs), nil
	}
	for _, err := range errs {
		var infra *InfraFailed
		if err != nil && !errors.As(err, &infra) {
			return nil, err
		}
	}
	return gathered(made, errs, l.least)
}

// play plays one episode, again when the environment fails.
func (r *episodes) play(ctx context.Context, task Task, p sampling, l limits) (s sequence, err error) {
	p.N = 1
	err = r.attempts(ctx, r.settings.EpisodeAttempts, "an episode", func() (err error) {
		s, err = r.once(ctx, task, p, l)
		return err
	})
	return s, err
}

// attempts calls once, and again as long as it returns an InfraFailed, at most so often.
func (r *rolling) attempts(ctx context.Context, most int64, what string, once func() error) error {
	for attempt := int64(1); ; attempt++ {
		err := once()
		var infra *InfraFailed
		failed := errors.As(err, &infra)
		if ctx.Err() == nil {
			r.stats.episode(failed)
		}
		if !failed || attempt >= most || ctx.Err() != nil {
			return err
		}
		wait := min(retryFirst<<(attempt-1), retryLast)
		r.log("warn", fmt.Sprintf("%s begins again in %s (attempt %d of %d): %v", what, wait, attempt+1, most, err))
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// closeWithin bounds how long an episode may take to release what it holds.
const closeWithin = 10 * time.Second

// once plays one episode. Its time counts from when it has begun: waiting for a free place on the environment's server
// is no part of it.
func (r *episodes) once(ctx context.Context, task Task, p sampling, l limits) (sequence, error) {
	end := r.stages.act.begin()
	episode, said, err := r.env.Begin(ctx, task)
	end()
	var infra *InfraFailed
	switch {
	case err == nil:
		r.begins.begun()
	case errors.As(err, &infra) && ctx.Err() == nil && !l.every:
		if e := r.begins.hopeless(err, max(r.settings.EpisodeAttempts, 2), time.Now()); e != nil {
			return sequence{}, &noEpisode{e}
		}
	}
	if err != nil {
		return sequence{}, fmt.Errorf("begin an episode: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, r.settings.EpisodeTimeout)
	defer cancel()
	s, err := r.episode(within, episode, said, p, l)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		err = &InfraFailed{Err: fmt.Errorf("the episode took longer than episode_timeout = %s: %w", r.settings.EpisodeTimeout,
			err)}
	}
	return s, err
}

// episode plays an episode that has begun.
func (r *episodes) episode(ctx context.Context, episode Episode, said []Message, p sampling, l limits,
) (s sequence, err error) {
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		episode.Close(closing)
	}()
	if len(said) == 0 {
		return s, errors.New("begin an episode: the environment's Begin returned no message; the model needs one")
	}
	talking := talk{ask: r.ask, bridge: r.bridge, stages: r.stages}
	beside := newMetrics()
	beside.set(invalidActions, 0)
	s.metrics = beside.values
	for {
		answer, err := talking.answer(ctx, &s, question{messages: said}, p, l)
		if err != nil || answer == nil {
			return s, err
		}
		answer.metrics = beside
		end, acting := r.stages.act.begin(), trace.Start(ctx, "environment step")
		step, err := episode.Step(ctx, *answer)
		end()
		acting.End(err)
		if err == nil {
			err = beside.err
		}
		if err != nil {
			return s, fmt.Errorf("turn %d: %w", s.turns, err)
		}
		if err := r.take(&s, step); err != nil {
			return s, fmt.Errorf("turn %d: %w", s.turns, err)
		}
		switch said = step.Messages; {
		case step.Done:
			return s, nil
		case s.turns >= int(r.settings.MaxTurns):
			s.cut = true
			return s, nil
		case len(said) == 0:
			return s, fmt.Errorf("turn %d: the environment's Step returned no message and not Done; the model needs "+
				"something to answer", s.turns)
		}
	}
}

// invalidActions is the metric of an episode that counts the turns which were no action.
const invalidActions = "invalid_actions"

// take adds the reward of a step.
func (r *episodes) take(s *sequence, step Step) error {
	if !trainable(step.Reward) {
		return &InfraFailed{Err: fmt.Errorf("the environment gave the reward %v; expected a number between %g and %g",
			step.Reward, -largest, largest)}
	}
	if r.settings.Reward == "last" {
		s.score = step.Reward
	} else {
		s.score += step.Reward
	}
	if step.Invalid {
		s.metrics[invalidActions]++
	}
	return nil
}

// talk lets the model answer in conversations.
type talk struct {
	ask    asker
	bridge *bridge
	stages *stages
}

// answer lets the model answer a question, the first one of a conversation or the messages since its last answer; nil
// when the sequence has no room for them and an answer. A first question without room is a tooLong error.
func (t talk) answer(ctx context.Context, s *sequence, q question, p sampling, l limits) (*Completion, error) {
	said := q.messages
	if q.text != "" {
		said = Task{Prompt: q.text}.conversation()
	}
	end := t.stages.draw.begin() // rendering what was said is a request to the inference block as well
	drawn, err := t.draw(ctx, s, q, p, l)
	end()
	var long *tooLong
	if errors.As(err, &long) && s.turns > 0 {
		s.cut = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.read(drawn.prompt[len(s.tokens):])
	c := drawn.completions[0]
	s.answered(c, drawn.versions, drawn.spans[0])
	s.conversation = append(append(s.conversation, said...), c.said())
	return &c, nil
}

// draw samples one answer. After an earlier one, the prompt is the sequence so far and what was said since.
func (t talk) draw(ctx context.Context, s *sequence, q question, p sampling, l limits) (*sample, error) {
	if s.turns > 0 {
		between, err := t.bridge.between(ctx, q.messages, s.tokens[len(s.tokens)-1])
		if err != nil {
			return nil, err
		}
		q = question{tokens: slices.Concat(s.tokens, between)}
		if l.tokens > 0 {
			room := l.tokens - len(q.tokens)
			if room < 1 {
				return nil, &tooLong{fmt.Errorf("it would have %d tokens, and %d are the limit", len(q.tokens)+1, l.tokens)}
			}
			p.MaxTokens = min(p.MaxTokens, int64(room))
		}
	}
	return t.ask(ctx, q, p.seededFor(int64(s.turns)))
}
