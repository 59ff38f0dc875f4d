package tiny

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// masked is the mask of a token that is not trained on.
const masked = -100

// convert takes a group from the form in which environments post it. What the lists hold is checked by
// grpo.Group.Validate; here it is only made sure that they have one entry a sequence.
func convert(g *trajectory.Group) (grpo.Group, error) {
	out := grpo.Group{Name: "environment unknown"}
	if g.EnvID != nil {
		out.Name = "environment " + strconv.Itoa(*g.EnvID)
	}
	n := len(g.Tokens)
	for _, list := range []struct {
		name string
		len  int
		must bool
	}{
		{"masks", len(g.Masks), true}, {"scores", len(g.Scores), true}, {"advantages", len(g.Advantages), false},
		{"inference_logprobs", len(g.InferenceLogprobs), false}, {"overrides", len(g.Overrides), false},
	} {
		if list.len != n && (list.must || list.len > 0) {
			return out, fmt.Errorf("group of %s: %s: want one entry a sequence (%d), got %d", out.Name, list.name, n,
				list.len)
		}
	}
	for i, tokens := range g.Tokens {
		s := grpo.Sequence{Tokens: narrow(tokens), Trained: make([]bool, len(g.Masks[i])), Score: g.Scores[i]}
		for t, m := range g.Masks[i] {
			s.Trained[t] = m != masked
		}
		if len(g.InferenceLogprobs) > 0 && len(g.InferenceLogprobs[i]) > 0 {
			s.LogProbs = g.InferenceLogprobs[i]
		}
		if len(g.Advantages) > 0 {
			s.Advantages = g.Advantages[i]
		}
		if len(g.Overrides) > 0 {
			s.ZeroAdvantage, _ = g.Overrides[i]["set_advantage_to_zero"].(bool)
			s.Continues = g.Continues(i)
		}
		out.Sequences = append(out.Sequences, s)
	}
	return out, nil
}

// report is what is reported about one batch.
type report struct {
	trained   bool
	metrics   grpo.Metrics
	staleness []float64      // policy versions, one a group that knows its own
	rejected  map[string]int // groups that were left out, by reason
	example   error          // why the first of them was

	computed *trajectory.Trained // nil: nothing to tell
}

// computed is what the views of a run show of a step; version is that of the weights before it, 0 for none.
func computed(m grpo.Metrics, indices []int, version int64) *trajectory.Trained {
	t := &trajectory.Trained{Step: int64(m.Step), Version: &version}
	for i, c := range m.Computed {
		t.Groups = append(t.Groups, trajectory.TrainedGroup{Index: indices[i], Logprobs: trajectory.Floats(c.LogProbs),
			Advantages: trajectory.Floats(c.Advantages)})
	}
	return t
}

func (r *report) reject(reason string, why error) {
	if r.rejected == nil {
		r.rejected = map[string]int{}
		r.example = why
	}
	r.rejected[reason]++
}

// unused are the metrics of groups that were left out.
func (r *report) unused() map[string]float64 {
	values, total := map[string]float64{}, 0
	for reason, n := range r.rejected {
		total += n
		values["rejected_groups/"+reason] = float64(n)
	}
	values["rejected_groups"] = float64(total)
	return values
}

// emitUnused reports a batch without anything to train on.
func (r *report) emitUnused(host sdk.Host, step int) { host.Metrics(int64(step), r.unused()) }

func (r *report) emit(host sdk.Host, c TrainerConfig, waited, trained, total time.Duration) {
	m := r.metrics
	values := map[string]float64{
		"reward": m.RewardMean, "reward_deviation": m.RewardDeviation, "loss": m.Loss, "policy_kl": m.PolicyKL,
		"clip_fraction": m.ClipFraction, "entropy": m.Entropy, "grad_norm": m.GradNorm, "learning_rate": m.LearningRate,
		"tokens": float64(m.Tokens), "tokens_per_second": float64(m.TotalTokens) / total.Seconds(),
		"sequences": float64(m.Sequences), "groups": float64(m.Groups), "flat_groups": float64(m.FlatGroups),
		"advantage_mean": m.AdvantageMean, "advantage_deviation": m.AdvantageDeviation, "advantage_min": m.AdvantageMin,
		"advantage_max":     m.AdvantageMax,
		"override_fraction": m.OverrideFraction, "fallback_groups": float64(m.FallbackGroups),
		"zeroed_sequences": float64(m.ZeroedSequences),
		"seconds_waiting":  waited.Seconds(), "seconds_training": trained.Seconds(),
		"seconds_syncing": (total - waited - trained).Seconds(),
	}
	maps.Copy(values, r.unused())
	if c.KL != nil {
		values["kl"] = m.KL
	}
	for name, gap := range map[string]grpo.Mismatch{"fresh": m.Fresh, "stale": m.Stale} {
		values["mismatch/"+name+"_tokens"] = float64(gap.Tokens)
		if gap.Tokens > 0 {
			values["mismatch/"+name+"_mean_abs"], values["mismatch/"+name+"_max_abs"] = gap.MeanAbs, gap.MaxAbs
			values["mismatch/"+name+"_kl"], values["mismatch/"+name+"_clipped"] = gap.KL, gap.Clipped
		}
	}
	if len(r.staleness) > 0 {
		var sum, most float64
		for _, v := range r.staleness {
			sum, most = sum+v, max(most, v)
		}
		values["staleness"], values["staleness_max"] = sum/float64(len(r.staleness)), most
	}
	host.Metrics(int64(m.Step), values)
	host.Progress(int64(m.Step), c.Steps, "steps")
}
