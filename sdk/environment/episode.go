package environment

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// Episodic is an environment of several turns: the model says something, the environment answers, and so on until the
// episode is over. DefineEpisodes makes a plugin of one. The tokens that are trained on are those that were sampled:
// nothing the model has said is turned into tokens a second time. Next and Begin are called from several goroutines at
// once; the methods of one episode are not.
type Episodic interface {
	// Next returns the next task; EOF says that there are no more. All episodes of a group are of one task.
	Next(ctx context.Context) (Task, error)
	// Begin begins one episode of a task and returns the conversation with which it begins. It bounds its own waits. An
	// error that is an InfraFailed lets the episode begin again, any other one ends the block.
	Begin(ctx context.Context, task Task) (Episode, []Message, error)
}

// Episode is one episode that has begun.
type Episode interface {
	// Step takes what the model said and returns what follows. Errors are as those of Begin: what the model does wrong
	// is no error but an answer to it. A number that it records with said.Metric is that of the episode, and replaces
	// one that an earlier turn recorded under the same name.
	Step(ctx context.Context, said Completion) (Step, error)
	// Close releases what the episode holds. It is called once, also after an error.
	Close(ctx context.Context)
}

// Step is what follows a turn of the model.
type Step struct {
	Messages []Message // what the model reads next; may be empty when Done
	Reward   float64   // for this turn
	Done     bool      // the episode is over
	Invalid  bool      // what the model said was no action; counted in the episode's metric invalid_actions
}

// InfraFailed says that the environment and not the model is the cause of a failure: its server does not answer, has
// died, or answers nonsense. It costs time and never becomes a low reward: the episode begins again, as often as
// episode_attempts says; then it is left out of its group.
type InfraFailed struct {
	Err error
	// Answered says that the environment is there and refuses: this is its answer. When it has refused each group since
	// the block started with the same words, the block fails and is not started again.
	Answered bool
}

func (f *InfraFailed) Error() string { return "infra_failed: " + f.Err.Error() }
func (f *InfraFailed) Unwrap() error { return f.Err }

// EpisodeSettings are the attributes that environments of several turns have besides Settings. An author's
// configuration struct embeds both.
type EpisodeSettings struct {
	MaxTurns        int64         `recipe:"max_turns" default:"16" min:"1" unit:"turns" doc:"Answers of the model in one episode at most. What is cut off here keeps the rewards so far"`
	Reward          string        `recipe:"reward" default:"sum" enum:"sum,last" doc:"What an episode scores: the sum of the rewards of its turns, or that of its last turn"`
	EpisodeTimeout  time.Duration `recipe:"episode_timeout" default:"30m" min:"1s" doc:"How long one episode may take once it has begun, waiting for inference included; then it counts as infra_failed"`
	EpisodeAttempts int64         `recipe:"episode_attempts" default:"3" min:"1" doc:"How often an episode is begun whose environment fails (infra_failed), before it is left out of its group (min_rollouts)"`
}

func (s EpisodeSettings) episodes() EpisodeSettings { return s }

// EpisodeConfig is the configuration of an environment of several turns: a struct that embeds Settings and
// EpisodeSettings.
type EpisodeConfig interface {
	Config
	episodic
}

type episodic interface{ episodes() EpisodeSettings }

var _ episodic = EpisodeSettings{}

// DefineEpisodes is Define for an environment of several turns.
func DefineEpisodes[C EpisodeConfig, E Episodic](
	name, summary string, open func(ctx context.Context, setup Setup[C]) (E, error), opts ...sdk.Option,
) *sdk.Definition {
	return New(name, summary, factory(open, func(env E, c C, with rolling) roller {
		return &episodes{env: env, settings: c.episodes(), rolling: with, bridge: newBridge(with.ask)}
	}, false), declared(opts)...)
}
