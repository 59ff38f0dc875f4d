package grpo

import "math"

// Metrics describe one call of Train; with several epochs, the mean over them. Token means are
// over the trained tokens of the whole batch.
type Metrics struct {
	Step      int `json:"step"` // optimizer steps so far
	Groups    int `json:"groups"`
	Sequences int `json:"sequences"`
	Tokens    int `json:"tokens"` // trained
	// TotalTokens counts prompts too.
	TotalTokens  int     `json:"total_tokens"`
	Loss         float64 `json:"loss"` // policy loss + KL coefficient × KL
	PolicyLoss   float64 `json:"policy_loss"`
	KL           float64 `json:"kl"`        // from the reference; 0 without a coefficient
	PolicyKL     float64 `json:"policy_kl"` // from the policy that sampled: how far off-policy
	ClipFraction float64 `json:"clip_fraction"`
	Entropy      float64 `json:"entropy"` // nats a token
	GradNorm     float64 `json:"grad_norm"`
	LearningRate float64 `json:"learning_rate"`

	RewardMean      float64 `json:"reward_mean"`
	RewardDeviation float64 `json:"reward_deviation"`

	AdvantageMean      float64 `json:"advantage_mean"`
	AdvantageDeviation float64 `json:"advantage_deviation"`
	AdvantageMin       float64 `json:"advantage_min"`
	AdvantageMax       float64 `json:"advantage_max"`
	// OverrideFraction is the part of sequences whose own advantages were used; IgnoredOverrides and
	// ZeroedSequences count sequences, FallbackGroups groups with at least one sequence on the
	// group's advantage, FlatGroups those of them whose equal scores teach nothing.
	OverrideFraction  float64 `json:"override_fraction"`
	IgnoredOverrides  int     `json:"ignored_overrides"`
	ZeroedSequences   int     `json:"zeroed_sequences"`
	FallbackGroups    int     `json:"fallback_groups"`
	FlatGroups        int     `json:"flat_groups"`
	AdvantageClipping float64 `json:"advantage_clip_fraction"`

	// Fresh and Stale compare the sampler's log-probabilities with the trainer's before its first step on the batch.
	Fresh Mismatch `json:"fresh"`
	Stale Mismatch `json:"stale"`

	Computed []Computed `json:"-"` // of each group
}

// Computed holds a value for each trained token of a group, sequence after sequence.
type Computed struct {
	LogProbs   []float64 // under the policy before the batch's first optimizer step
	Advantages []float64
}

// Mismatch is how far sampled and trained log-probabilities of tokens are apart. While it is added up its means are
// sums.
type Mismatch struct {
	Tokens  int     `json:"tokens"`
	MeanAbs float64 `json:"mean_abs"`
	MaxAbs  float64 `json:"max_abs"`
	KL      float64 `json:"kl"`      // k3 estimate, nats a token
	Clipped float64 `json:"clipped"` // share of tokens whose ratio the clip bounds leave out
}

func (m *Mismatch) add(o Mismatch) {
	m.Tokens += o.Tokens
	m.MeanAbs += o.MeanAbs
	m.MaxAbs = max(m.MaxAbs, o.MaxAbs)
	m.KL += o.KL
	m.Clipped += o.Clipped
}

// mean makes means of the sums.
func (m Mismatch) mean() Mismatch {
	n := float64(max(m.Tokens, 1))
	m.MeanAbs, m.KL, m.Clipped = m.MeanAbs/n, m.KL/n, m.Clipped/n
	return m
}

// moments gathers mean, deviation (ddof 0) and range.
type moments struct{ n, sum, squares, low, high float64 }

func (m *moments) add(v float64) {
	if m.n == 0 {
		m.low, m.high = v, v
	}
	m.n++
	m.sum += v
	m.squares += v * v
	m.low, m.high = min(m.low, v), max(m.high, v)
}

func (m *moments) mean() float64 { return m.sum / max(m.n, 1) }

func (m *moments) deviation() float64 {
	return math.Sqrt(max(m.squares/max(m.n, 1)-m.mean()*m.mean(), 0))
}

// describe fills what is known before the model runs.
func describe(groups []Group, advantages [][][]float64, stats advantageStats) Metrics {
	m := Metrics{
		Groups: len(groups), IgnoredOverrides: stats.ignored, ZeroedSequences: stats.zeroed,
		FallbackGroups: stats.fallbackGroups, FlatGroups: stats.flatGroups,
	}
	var rewards, pushes moments
	for g := range groups {
		for i := range groups[g].Sequences {
			s := &groups[g].Sequences[i]
			m.Sequences++
			m.TotalTokens += len(s.Tokens)
			if !s.Continues {
				rewards.add(s.Score)
			}
			for t := range s.Tokens {
				if s.trains(t) {
					m.Tokens++
					pushes.add(advantages[g][i][t])
				}
			}
		}
	}
	m.RewardMean, m.RewardDeviation = rewards.mean(), rewards.deviation()
	m.AdvantageMean, m.AdvantageDeviation = pushes.mean(), pushes.deviation()
	m.AdvantageMin, m.AdvantageMax = pushes.low, pushes.high
	m.OverrideFraction = float64(stats.overridden) / float64(max(m.Sequences, 1))
	m.AdvantageClipping = float64(stats.clipped) / float64(max(m.Tokens, 1))
	return m
}

// add counts one epoch.
func (m *Metrics) add(s sums, norm float64, c Config) {
	n := float64(m.Tokens)
	m.PolicyLoss += s.policy / n
	m.KL += s.kl / n
	m.Loss += (s.policy + c.KL*s.kl) / n
	m.PolicyKL += s.drift / n
	m.Entropy += s.entropy / n
	m.ClipFraction += float64(s.clipped) / n
	m.GradNorm += norm
}

func (m *Metrics) finish(epochs int) {
	for _, v := range []*float64{&m.PolicyLoss, &m.KL, &m.Loss, &m.PolicyKL, &m.Entropy, &m.ClipFraction, &m.GradNorm} {
		*v /= float64(epochs)
	}
}
