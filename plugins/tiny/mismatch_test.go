package tiny

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// Differences between served and trained log-probabilities are in every step's metrics: "fresh" ones while the weights
// are those that are served. Without a sync block, samples of version 0 are stale from the second step on.
func TestMetricsCompareServedAndTrained(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, newAPI(t), 3))
	b.WaitPhase(sdk.Completed)
	m := metricsOf(b)
	if m[1]["mismatch/fresh_tokens"] != 16 || m[1]["mismatch/stale_tokens"] != 0 ||
		m[1]["mismatch/fresh_mean_abs"] <= 0 || m[1]["mismatch/fresh_max_abs"] < m[1]["mismatch/fresh_mean_abs"] {
		t.Errorf("first step: %v", m[1])
	}
	if _, has := m[1]["mismatch/stale_mean_abs"]; has {
		t.Error("the first step tells of stale samples that are not there")
	}
	if m[2]["mismatch/fresh_tokens"] != 0 || m[2]["mismatch/stale_tokens"] != 16 || m[2]["mismatch/stale_kl"] <= 0 {
		t.Errorf("second step: %v", m[2])
	}
}

func TestThePlanSaysWhatCorrectsStaleSamples(t *testing.T) {
	t.Parallel()
	e, problems := (&training{}).Plan(trainerBody(t, newAPI(t), 3), sdk.Placement{})
	if len(problems) > 0 || len(e.Notes) != 1 ||
		!strings.Contains(e.Notes[0], "uses the sampler's log-probabilities, clipped to [0.8, 1.2]") {
		t.Errorf("notes %q, problems %+v", e.Notes, problems)
	}
}
