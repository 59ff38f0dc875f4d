// Package evaluation turns the scores of held-out tasks into estimates with intervals, and keeps the scores in a file,
// so that an evaluation that was interrupted is continued.
package evaluation

import (
	"fmt"
	"math"

	"github.com/recipe-rl/recipe/sdk"
)

// PassAtK is the unbiased estimate of the probability that at least one of k completions passes, from n completions of
// which c pass: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language Models Trained on Code",
// arXiv:2107.03374). k is at most n.
func PassAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	miss := 1.0
	for i := n - c + 1; i <= n; i++ { // a product of ratios: the binomials themselves overflow
		miss *= 1 - float64(k)/float64(i)
	}
	return 1 - miss
}

// Estimate is a mean over tasks with a 95 % interval.
type Estimate struct {
	Mean   float64 `json:"mean"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Method Method  `json:"method"` // of the interval
}

// Method is how an interval is computed.
type Method string

// The methods of intervals.
const (
	Wilson Method = "wilson" // of values between 0 and 1: it stays within them
	Normal Method = "normal" // mean ± z × standard error
)

// z is the quantile of the normal distribution for 95 %.
const z = 1.959963984540054

// Proportion is the mean of values between 0 and 1, one a task, with Wilson's interval (Wilson 1927) for the effective
// number of tasks: the number divided by the design effect, which is how much the values vary compared with 0 and 1 of
// the same mean (Franco et al. 2019, "Comparative Study of Confidence Intervals for Proportions in Complex Sample
// Surveys"). For values of 0 and 1 it is the number of tasks. Tasks are the unit that is sampled: completions of one
// task are not independent. Unlike mean ± z × standard error the interval stays within 0 and 1, and is not empty when
// all tasks agree.
func Proportion(values []float64) Estimate {
	mean, deviation := moments(values)
	n := float64(len(values))
	effective := n
	if variance := deviation * deviation; variance > 1e-12 && mean > 0 && mean < 1 { // less is rounding
		effective = n * mean * (1 - mean) / (variance * (n - 1) / n)
	}
	center := (mean + z*z/(2*effective)) / (1 + z*z/effective)
	half := z / (1 + z*z/effective) * math.Sqrt(mean*(1-mean)/effective+z*z/(4*effective*effective))
	return Estimate{Mean: mean, Low: max(0, min(mean, center-half)), High: min(1, max(mean, center+half)),
		Method: Wilson}
}

// Of is the mean of values, one a task, with the interval that fits them: Proportion where bounded says that the values
// of all completions lie between 0 and 1, else Mean.
func Of(values []float64, bounded bool) Estimate {
	if bounded {
		return Proportion(values)
	}
	return Mean(values)
}

// unit reports whether a value lies between 0 and 1.
func unit(v float64) bool { return v >= 0 && v <= 1 }

// Mean is the mean of any values, one a task, ± z × standard error.
func Mean(values []float64) Estimate {
	mean, deviation := moments(values)
	half := z * deviation / math.Sqrt(float64(len(values)))
	return Estimate{Mean: mean, Low: mean - half, High: mean + half, Method: Normal}
}

// moments are the mean and the standard deviation (ddof 1; 0 for one value).
func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / max(1, float64(len(values)-1)))
}

// At is pass@k.
type At struct {
	K int `json:"k"`
	Estimate
}

// Summary is what the scores of tasks come to.
type Summary struct {
	Tasks  int      `json:"tasks"`
	PassAt []At     `json:"pass_at"`
	Score  Estimate `json:"score"`
	// Metrics are what the environment gives beside scores, by name, each over the tasks that have it.
	Metrics map[string]Estimate `json:"metrics,omitempty"`
	// Failed counts the completions without a score. They count as not passed, and not in Score.
	Failed int `json:"failed"`
	// Reasons are why, with the number of completions.
	Reasons map[string]int `json:"failed_reasons,omitempty"`
}

// Summarize estimates pass@k for each k, where a completion passes whose score is at least pass.
func Summarize(results []sdk.TaskScore, ks []int, pass float64) (Summary, error) {
	s := Summary{Tasks: len(results)}
	if len(results) == 0 {
		return s, fmt.Errorf("no task has been evaluated")
	}
	var means []float64 // of the tasks of which a completion has a score
	bounded := true
	for _, r := range results {
		s.Failed += len(r.Failed)
		for _, why := range r.Failed {
			if s.Reasons == nil {
				s.Reasons = map[string]int{}
			}
			s.Reasons[why]++
		}
		mean := 0.0
		for _, score := range r.Scores {
			mean += score / float64(len(r.Scores))
			bounded = bounded && unit(score)
		}
		if len(r.Scores) > 0 {
			means = append(means, mean)
		}
	}
	if len(means) == 0 {
		return s, fmt.Errorf("no completion of %d tasks got a score: %s", len(results), results[0].Failed[0])
	}
	s.Score = Of(means, bounded)
	s.Metrics = metrics(results)
	for _, k := range ks {
		values := make([]float64, len(results))
		for i, r := range results {
			passed := 0
			for _, score := range r.Scores {
				if score >= pass {
					passed++
				}
			}
			drawn := len(r.Scores) + len(r.Failed) // what has no score has not passed
			if k < 1 || k > drawn {
				return s, fmt.Errorf("pass@%d cannot be estimated from %d completions a task", k, drawn)
			}
			values[i] = PassAtK(drawn, passed, k)
		}
		s.PassAt = append(s.PassAt, At{k, Proportion(values)})
	}
	return s, nil
}

// metrics estimates each of the numbers beside the scores; nil when there are none.
func metrics(results []sdk.TaskScore) map[string]Estimate {
	values, unbounded := map[string][]float64{}, map[string]bool{}
	for _, r := range results {
		for name, v := range r.Metrics {
			values[name] = append(values[name], v)
			unbounded[name] = unbounded[name] || !unit(v)
		}
		for _, c := range r.Completions {
			for name, v := range c.Metrics {
				unbounded[name] = unbounded[name] || !unit(v)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	out := map[string]Estimate{}
	for name, v := range values {
		out[name] = Of(v, !unbounded[name])
	}
	return out
}
