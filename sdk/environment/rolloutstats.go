package environment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// rolloutStats adds up what was sampled since the last report. Rewards are counted over all groups: the reward of those
// that are sent is biased, since the better the policy, the more groups are all right and not sent.
type rolloutStats struct {
	mu     sync.Mutex
	making making
	counts counts
	means  means // of the author's metrics
	causes causes
	show   *sdk.Sample
	long   error // why the first group was too long for the model's context
	told   bool  // about it
	flat   flatRow
}

// flatRow are groups in a row whose scores were all equal, and when they are worth a warning.
type flatRow struct {
	groups  int
	reward  float64 // sum of their means
	warned  int     // length of the row that the last warning was about; zero before the first
	differs int     // groups with different scores since that warning
}

type counts struct {
	groups, sent, uninformative, tooLong, lost, retries float64
	late                                                float64
	scored, reward, rewardSent, sentRollouts            float64
	tokens, cut                                         float64
	episodes, infraFailed, turns                        float64
	infraRollouts                                       float64
	rollouts, failed                                    float64
	wasted, passed                                      float64
}

func newRolloutStats() *rolloutStats { return &rolloutStats{} }

// making is the time during which groups were being made. Tokens are counted when their group is done, and groups of a
// batch are done together: tokens a second are those of several reports, not of the one in which they were counted.
type making struct {
	groups int
	since  time.Time // the groups that are being made count from here on
	took   time.Duration
}

func (m *making) begin() {
	if m.groups++; m.groups == 1 {
		m.since = time.Now()
	}
}

func (m *making) end() {
	if m.groups--; m.groups == 0 {
		m.took += time.Since(m.since)
	}
}

// take returns the time since the last call.
func (m *making) take() time.Duration {
	took, now := m.took, time.Now()
	if m.groups > 0 {
		took += now.Sub(m.since)
	}
	m.took, m.since = 0, now
	return took
}

// begin counts a group that is being made until the returned function is called.
func (t *rolloutStats) begin() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making.begin()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.making.end()
	}
}

// passedOver counts a task that the curriculum has left out.
func (t *rolloutStats) passedOver() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.passed++
}

func (t *rolloutStats) add(task Task, made *rolled, sent, tooLong bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.counts
	c.groups++
	if !sent {
		c.wasted += float64(made.rollouts())
	}
	for _, s := range made.sequences {
		if s.failed == nil {
			c.tokens += float64(s.sampled)
			c.turns += float64(s.turns)
		}
		if s.part { // its rollout counts once
			continue
		}
		if c.rollouts++; s.failed != nil {
			c.failed++
			t.causes.add(cause(s.failed), 1)
			var infra *InfraFailed
			if errors.As(s.failed, &infra) {
				c.infraRollouts++
			}
			continue
		}
		c.scored++
		c.reward += s.score
		t.means.add(s.metrics)
		if s.cut {
			c.cut++
		}
		if sent {
			c.rewardSent += s.score
			c.sentRollouts++
		}
	}
	if made.informative() {
		t.flat.end()
	} else if first := made.first(); first != nil {
		t.flat.add(first.score)
	}
	switch {
	case sent:
		c.sent++
	case tooLong:
		c.tooLong++
	default:
		c.uninformative++
	}
	if first := made.first(); t.show == nil && first != nil {
		t.show = &sdk.Sample{Prompt: task.text(), Completion: first.text, Score: first.score}
		if t.show.Prompt == "" { // the environment said it, and not the task
			t.show.Prompt = Task{Messages: first.conversation[:1]}.text()
		}
		if first.versions != nil {
			t.show.Version = first.versions.Max
		}
	}
}

// episode counts an episode that began, and whether the environment, and not the model, has ended it.
func (t *rolloutStats) episode(infraFailed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.episodes++
	if infraFailed {
		t.counts.infraFailed++
	}
}

// tooLong counts a group whose task is longer than the model's context.
func (t *rolloutStats) tooLong(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.long = cmp.Or(t.long, reason)
	t.counts.groups++
	t.counts.tooLong++
}

// firstLong is why the first group was too long, once.
func (t *rolloutStats) firstLong() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told {
		return nil
	}
	t.told = t.long != nil
	return t.long
}

// lost counts a group of so many rollouts that is left out, and whether the environment, and not its code, is the
// cause.
func (t *rolloutStats) lost(reason error, rollouts int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.groups++
	t.counts.lost++
	t.counts.rollouts += float64(rollouts)
	t.counts.failed += float64(rollouts)
	t.counts.wasted += float64(rollouts)
	t.causes.lost(reason, float64(rollouts))
	var infra *InfraFailed
	if errors.As(reason, &infra) {
		t.counts.infraRollouts += float64(rollouts)
	}
}

// stale counts a group that was ended because it took much longer than the others.
func (t *rolloutStats) stale(rollouts int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.groups++
	t.counts.late++
	t.counts.wasted += float64(rollouts)
}

// failed counts a request to the inference block that was repeated.
func (t *rolloutStats) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.retries++
}

// take returns the metrics since the last call, nil when there are none, and one completion to show.
func (t *rolloutStats) take() (map[string]float64, *sdk.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, own, show := t.counts, t.means, t.show
	t.counts, t.means, t.show = counts{}, means{}, nil
	if c == (counts{}) {
		return nil, nil
	}
	values := map[string]float64{
		"groups": c.groups, "groups_sent": c.sent, "groups_uninformative": c.uninformative,
		"groups_too_long": c.tooLong,
		"groups_lost":     c.lost, "groups_stale": c.late, "sampling_retries": c.retries,
	}
	if c.rollouts > 0 {
		values["rollouts_wasted"] = c.wasted
		values["rollouts_failed"], values["rollouts_failed_fraction"] = c.failed, c.failed/c.rollouts
		values["rollouts"] = c.rollouts
	}
	if c.passed > 0 {
		values["tasks/passed_over"] = c.passed
	}
	if c.groups > 0 {
		values["dropped_fraction"] = (c.groups - c.sent) / c.groups
	}
	if c.scored > 0 {
		values["reward"] = c.reward / c.scored
		values["completion_tokens"] = c.tokens / c.scored
		values["truncated"] = c.cut / c.scored
		values["tokens_per_second"] = c.tokens / max(t.making.take().Seconds(), 1e-9)
	}
	switch {
	case c.episodes > 0:
		values["infra_failed"], values["infra_failed_fraction"] = c.infraFailed, c.infraFailed/c.episodes
		if c.scored > 0 {
			values["turns"] = c.turns / c.scored
		}
	case c.rollouts > 0: // of one answer each
		values["infra_failed"], values["infra_failed_fraction"] = c.infraRollouts, c.infraRollouts/c.rollouts
	}
	if c.sentRollouts > 0 {
		values["reward_sent"] = c.rewardSent / c.sentRollouts
	}
	for name, n := range t.causes.take() {
		values[failedPrefix+name] = n
	}
	own.each(func(name string, mean float64) { values[metricPrefix+name] = mean })
	return values, show
}

// add lengthens the row by a group with this score.
func (f *flatRow) add(score float64) { f.groups, f.reward = f.groups+1, f.reward+score }

// end ends the row: a group has different scores.
func (f *flatRow) end() { f.groups, f.reward, f.differs = 0, 0, f.differs+1 }

// due returns the length of the row and its mean score when a warning is due: for the first row of manyGroups, and
// later for a row moreRow times as long as the one of the last warning, with at least manyGroups groups of different
// scores in between. A shorter condition warned again and again while few groups differed.
func (f *flatRow) due() (groups int, mean float64) {
	if f.groups < manyGroups || f.warned > 0 && (f.differs < manyGroups || f.groups < moreRow*f.warned) {
		return 0, 0
	}
	f.warned, f.differs = f.groups, 0
	return f.groups, f.reward / float64(f.groups)
}

// flatRow returns the number of groups in a row whose scores were all equal and their mean when they are worth a
// warning.
func (t *rolloutStats) flatRow() (int, float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flat.due()
}

// manyGroups without a difference in their scores are worth a warning: the trainer waits and would not say why.
const manyGroups = 20

// moreRow is how many times as long a row of groups with equal scores must be for a further warning.
const moreRow = 10

// report tells the metrics since the last report.
func (r *rollouts) report(last bool) {
	values, show := r.stats.take()
	if values == nil {
		return
	}
	maps.Copy(values, r.rates.metrics(r.settings.Curriculum))
	if middle, most := r.tail.take(); most > 0 {
		values["group_seconds/median"], values["group_seconds/max"] = middle.Seconds(), most.Seconds()
	}
	r.host.Metrics(int64(r.step), values)
	if n, reward := r.stats.flatRow(); n > 0 {
		what := "drop_uninformative leaves them out, so there is nothing to train on"
		if !r.settings.DropUninformative {
			what = "they are trained on all the same (drop_uninformative = false), and have no advantage"
		}
		r.host.Log("warn", fmt.Sprintf("all scores were equal in each of the last %d groups (mean %.3g); %s. Look at "+
			"answers with their scores first (recipe env try): where good and bad ones have the same, the scoring is wrong. "+
			"Otherwise use easier tasks where scores are low and harder ones where they are high, give scores in finer "+
			"steps, or raise group_size. A row of fewer than %d such groups brings no further warning; "+
			"groups_uninformative counts them", n, reward, what, moreRow*n))
	}
	if long := r.stats.firstLong(); long != nil {
		r.host.Log("warn", fmt.Sprintf("a group is left out, and counted as groups_too_long like all later ones: %v", long))
	}
	n := values["groups"]
	if n > values["groups_too_long"] {
		r.allLong = false
	}
	if n > 0 && values["groups_too_long"] == n && (last || n >= manyGroups) && !r.allLong {
		r.allLong = true
		r.host.Log("warn", "every group was left out, since each is too long for the model's context or for what the "+
			"trainer takes, so there is nothing to train on: shorten the prompts, lower max_tokens, or use a model with a "+
			"longer context")
	}
	if show != nil && !last {
		show.Environment = r.name
		r.host.Sample(*show)
	}
}
