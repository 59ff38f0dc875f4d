package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

var (
	groups = flag.Int("groups", 6, "how many groups of sessions to play; hundreds for the long form")
	seeded = flag.Uint64("seed", 1, "what decides the moves of the programs; 0: another one each time")
)

const (
	groupSize = 3
	batchSize = 2 * groupSize // rollouts
	untrained = -100
)

type sessionsConfig struct {
	environment.Settings
	environment.SessionSettings
}

// agents is an environment whose rollouts are programs that do what agents do, and whose gateway and engine die.
type agents struct {
	w     *world
	tasks atomic.Int64
}

func (a *agents) Next(context.Context) (environment.Task, error) {
	n := a.tasks.Add(1)
	if n > int64(*groups) {
		return environment.Task{}, environment.EOF
	}
	return environment.Task{Prompt: "x", Data: &of{task: n}}, nil
}

type of struct {
	task  int64
	begun atomic.Int64
}

// Rollout is one program.
func (a *agents) Rollout(ctx context.Context, task environment.Task, policy *environment.Policy) error {
	own := task.Data.(*of)
	r := rand.New(rand.NewPCG(a.w.seed, uint64(own.task)<<16+uint64(own.begun.Add(1))))
	s, err := policy.Session(ctx, "", "t", environment.BudgetSettings{Turns: 1000})
	if err != nil {
		return err
	}
	p := &program{w: a.w, r: r, url: s.BaseURL, key: s.Key, dialect: []string{"chat", "messages", "responses"}[r.IntN(3)],
		disrupt: 4 + r.IntN(12), bySaid: map[string]*answer{}, after: map[int]*answer{},
		asked: map[string]*call{}}
	a.w.mu.Lock()
	a.w.programs = append(a.w.programs, p)
	number := len(a.w.programs)
	a.w.mu.Unlock()
	for range 3 + r.IntN(12) {
		p.step(ctx)
	}
	for len(p.answers) == 0 && ctx.Err() == nil {
		p.call(ctx, 0, p.ask(nil))
	}
	for range 20 {
		if _, err = s.End(ctx); err == nil {
			if err = s.Score(float64(number), nil); err == nil {
				p.scored = true
			}
			return err
		}
		if errors.Is(err, environment.ErrNoCall) {
			return err
		}
		time.Sleep(50 * time.Millisecond) // the gateway was killed
	}
	return err
}

// Programs that know nothing of training append to their conversations, edit and compact them, ask again and at a time
// and leave, while the gateway and the engine are killed and new weights come. What a trainer gets in the end is what
// the engine has sampled, after exactly what it had received, each token once; a rollout counts once, and nothing that
// a program has received is lost.
//
//docs:sessions.md what holds, while programs leave, and gateway and engine are killed
func TestSessionsAreTrainedAsSampled(t *testing.T) {
	w := &world{t: t, seed: *seeded, engine: newEngine(t), counts: map[string]int{},
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if w.seed == 0 {
		w.seed = rand.Uint64()
	}
	t.Logf("-seed %d", w.seed)
	w.gateway = newKillable(t, w.engine)
	defer w.later.Wait()
	api, url := trajectoryAPI(t)
	block := plugintest.Harness(t, environment.DefineRollouts("agents", "Agents.",
		func(context.Context, environment.Setup[sessionsConfig]) (*agents, error) { return &agents{w: w}, nil }))
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: url})
	block.Start(sessionsConfig{
		Settings: environment.Settings{Inference: plugintest.Ref("inference.x.y", kind.Inference, outputs.Inference{
			BaseURL: w.gateway.url + "/v1", Model: "policy", APIKey: gatewayKey, MaxModelLen: engineRoom,
			ControlURL: w.gateway.url, ControlToken: gatewayAdmin}),
			Trajectories: &book, GroupSize: groupSize, MaxTokens: engineRoom / 2, Temperature: 1, TopP: 1, Concurrency: 2,
			MaxBatchesOffpolicy: 4, RequestTimeout: 10 * time.Minute, ScoreTimeout: time.Minute},
		SessionSettings: environment.SessionSettings{RolloutAttempts: 9,
			Budget: environment.BudgetSettings{Turns: 1000, Seconds: 600}},
	})
	got := w.train(t, api)
	w.later.Wait()
	check(t, w, got)
}

func trajectoryAPI(t *testing.T) (*trajectory.Client, string) {
	s, err := trajectories.Open(t.Context(), trajectories.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		served.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	api, err := trajectory.New(served.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Register(t.Context(), trajectory.Registration{BatchSize: batchSize, MaxTokenLen: engineRoom,
		NumSteps: 1 << 20, SaveCheckpointInterval: 1, RolloutParts: true}); err != nil {
		t.Fatal(err)
	}
	return api, served.URL
}

// train fetches batches until there is nothing more to come.
func (w *world) train(t *testing.T, api *trajectory.Client) (got []trajectory.Group) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*groups)*10*time.Second)
	defer cancel()
	for len(got) < *groups {
		b, err := api.Batch(ctx, time.Hour)
		switch {
		case b == nil && ctx.Err() == nil && err == nil:
			continue
		case b == nil:
			t.Fatalf("seed %d: after %d groups there is no batch: %v", w.seed, len(got), errors.Join(err, ctx.Err()))
		}
		rollouts := 0
		for i := range b.Groups {
			rollouts += len(rolloutsOf(&b.Groups[i]))
		}
		if rollouts != batchSize || len(b.Unreadable) > 0 {
			t.Errorf("seed %d: a batch has %d rollouts and %d groups that cannot be read, want %d and none", w.seed, rollouts,
				len(b.Unreadable), batchSize)
		}
		if err := api.Ack(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Groups...)
	}
	return got
}

// rolloutsOf are the sequences of each rollout of a group.
func rolloutsOf(g *trajectory.Group) (out [][]int) {
	last := -1
	for i := range g.Tokens {
		n := i
		if len(g.Overrides) > 0 {
			if part, ok := g.Overrides[i][trajectory.OverrideRollout].(float64); ok {
				n = int(part)
			}
		}
		if n != last {
			out = append(out, nil)
		}
		out[len(out)-1], last = append(out[len(out)-1], i), n
	}
	return out
}

// check compares what a trainer got with what the engine did and the programs received.
func check(t *testing.T, w *world, got []trajectory.Group) {
	c := &checked{t: t, w: w, trained: map[int]int{}, shown: map[int]bool{}}
	for i := range got {
		for _, parts := range rolloutsOf(&got[i]) {
			c.rollout(&got[i], parts)
		}
	}
	scored := 0
	for _, p := range w.programs {
		if !p.scored {
			continue
		}
		scored++
		for _, a := range p.answers {
			c.answer(p, a)
		}
	}
	if c.rollouts != scored || scored != *groups*groupSize {
		t.Errorf("seed %d: %d rollouts were trained, %d were scored, want %d", w.seed, c.rollouts, scored,
			*groups*groupSize)
	}
	c.summary()
}

type checked struct {
	t        *testing.T
	w        *world
	rollouts int
	parts    int
	trained  map[int]int // by first token of an answer
	shown    map[int]bool
	doubtful int // answers that a kill may have kept from being noted as received
	again    int // answers that led nowhere, asked for again
	tokens   [2]int
}

func (c *checked) fail(format string, args ...any) {
	c.t.Errorf(fmt.Sprintf("seed %d: ", c.w.seed)+format, args...)
}

// rollout checks the parts of one rollout.
func (c *checked) rollout(g *trajectory.Group, parts []int) {
	c.rollouts++
	c.parts += len(parts)
	number := int(g.Scores[parts[0]])
	if number < 1 || number > len(c.w.programs) {
		c.fail("a rollout has score %g", g.Scores[parts[0]])
		return
	}
	p := c.w.programs[number-1]
	for _, i := range parts {
		if g.Scores[i] != g.Scores[parts[0]] {
			c.fail("the parts of a rollout have scores %g and %g", g.Scores[i], g.Scores[parts[0]])
		}
		if trained := c.sequence(g, i, p); trained == 0 {
			c.fail("sequence %d of a rollout trains nothing", i)
		}
	}
}

// sequence checks one sequence: each answer that it trains is whole, and stands after what the engine had received.
func (c *checked) sequence(g *trajectory.Group, i int, p *program) (trained int) {
	tokens, masks, logprobs := g.Tokens[i], g.Masks[i], g.InferenceLogprobs[i]
	for at := 0; at < len(tokens); at++ {
		x := c.w.engine.answers[tokens[at]]
		if x == nil {
			if masks[at] != untrained {
				c.fail("token %d is trained and begins no answer", tokens[at])
			}
			continue
		}
		c.shown[tokens[at]] = true
		end := at + len(x.output)
		switch {
		case end > len(tokens) || !slices.Equal(tokens[at:end], x.output):
			c.fail("the answer %v is not whole in %v", x.output, tokens[at:min(end, len(tokens))])
			return trained
		case !slices.Equal(tokens[:at], x.prompt):
			c.fail("the answer to call %d stands after %v, the engine had received %v", x.number, tokens[:at], x.prompt)
		case masks[at] == untrained:
			if slices.ContainsFunc(masks[at:end], func(m int) bool { return m != untrained }) {
				c.fail("call %d is trained in part: %v", x.number, masks[at:end])
			}
		default:
			trained++
			c.trained[tokens[at]]++
			c.trains(g, i, at, x, p)
			if !slices.Equal(masks[at:end], x.output) || !slices.Equal(logprobs[at:end], x.logprobs) {
				c.fail("call %d: masks %v and log-probabilities %v, want %v and %v", x.number, masks[at:end], logprobs[at:end],
					x.output, x.logprobs)
			}
		}
		at = end - 1
	}
	return trained
}

// trains checks an answer that is trained.
func (c *checked) trains(g *trajectory.Group, i, at int, x *exchange, p *program) {
	c.tokens[0] += len(x.output)
	after, known := p.after[x.number]
	switch first := x.output[0]; {
	case !p.scored || !known:
		c.fail("call %d is trained in the rollout of another program, or of one without a score", x.number)
	case x.forced || x.lost:
		c.fail("call %d is trained: a grammar narrowed it (%t), or the engine died (%t)", x.number, x.forced, x.lost)
	case c.trained[first] > 1:
		c.fail("call %d is trained %d times", x.number, c.trained[first])
	case after == nil && slices.Max(x.prompt) >= firstSampled:
		c.fail("call %d began anew, and the engine received tokens of an earlier answer: %v", x.number, x.prompt)
	case after != nil:
		before := c.w.engine.answers[after.first]
		if held := slices.Concat(before.prompt, before.output); len(x.prompt) <= len(held) ||
			!slices.Equal(x.prompt[:len(held)], held) {
			c.fail("call %d continues call %d, and the engine received %v instead of %v and more", x.number, before.number,
				x.prompt, held)
		}
	}
	if !slices.ContainsFunc(versions(g, i), func(v trajectory.VersionSpan) bool {
		return v.Start <= at && at+len(x.output) <= v.End && v.Version == x.version
	}) && (g.PolicyVersion == nil || versions(g, i) != nil || x.version < g.PolicyVersion.Min ||
		x.version > g.PolicyVersion.Max) {
		c.fail("call %d was sampled by version %d; the group has %v and %v", x.number, x.version, g.PolicyVersion,
			versions(g, i))
	}
}

// versions are the spans of a sequence; nil when the group's version is that of all of it.
func versions(g *trajectory.Group, i int) (out []trajectory.VersionSpan) {
	if len(g.Overrides) == 0 {
		return nil
	}
	list, _ := g.Overrides[i][trajectory.OverrideVersions].([]any)
	for _, v := range list {
		m := v.(map[string]any)
		out = append(out, trajectory.VersionSpan{Version: int64(m["version"].(float64)), Start: int(m["start"].(float64)),
			End: int(m["end"].(float64))})
	}
	return out
}

// answer checks that what a program has received is not lost.
func (c *checked) answer(p *program, a *answer) {
	x := c.w.engine.answers[a.first]
	if x == nil {
		c.fail("a program has received an answer that begins with %d, which the engine did not sample", a.first)
		return
	}
	c.tokens[1] += len(x.output)
	led := func(o *answer) bool { return o != a && o.request == a.request && o.continued }
	switch {
	case x.forced:
	case c.trained[a.first] == 1:
	case !a.back && slices.ContainsFunc(p.answers, led):
		c.again++
	case !a.back && c.w.gateway.killed(a.from, a.to.Add(2*time.Second)): // before it had noted that it has arrived
		c.doubtful++
	default:
		c.fail("call %d: its program has received the answer (it begins with %d), and it is not trained; shown: %t",
			x.number, a.first, c.shown[a.first])
	}
	// Only a gateway that was killed between the two may have forgotten that the first has arrived.
	twice := func(o *answer) bool {
		return o.first == a.first && o.to.After(a.to) && !c.w.gateway.killed(a.from, o.to)
	}
	if slices.ContainsFunc(p.answers, twice) {
		c.fail("call %d: a program that has received the answer and asks again gets the same (it begins with %d)", x.number,
			a.first)
	}
}

// summary says what happened, and fails a test that tests nothing.
func (c *checked) summary() {
	w := c.w
	var what strings.Builder
	for f, name := range []string{"", "slow", "left", "left late", "gateway killed during a call", "gateway killed late",
		"gateway killed between", "engine died", "engine died midway"} {
		if f > 0 {
			fmt.Fprintf(&what, "%s %d, ", name, w.happened[f])
		}
	}
	c.t.Logf("%d rollouts of %d sequences, %d calls, %d tokens trained, %d received; asked again %d, in doubt %d; "+
		"%d kills of the gateway; %s%v", c.rollouts, c.parts, w.numbers.Load(), c.tokens[0], c.tokens[1], c.again,
		c.doubtful, len(w.gateway.kills), what.String(), w.counts)
	if c.parts <= c.rollouts || len(w.gateway.kills) == 0 || w.happened[engineDies]+w.happened[engineMidway] == 0 ||
		c.doubtful*5 > c.tokens[1] {
		c.fail("the test tests nothing")
	}
}
