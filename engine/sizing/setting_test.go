package sizing

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// Messages about an engine use its own name of an attribute.
func TestSettingsAreNamedAsTheBlockHasThem(t *testing.T) {
	t.Parallel()
	s := sized{Estimate: sdk.Estimate{Facts: map[string]string{"name_of_max_model_len": "context_length"}}}
	if got := s.setting("max_model_len"); got != "context_length" {
		t.Errorf("max_model_len is called %q, want context_length", got)
	}
	if got := s.setting("gpu_memory_utilization"); got != "gpu_memory_utilization" {
		t.Errorf("gpu_memory_utilization is called %q", got)
	}
}
