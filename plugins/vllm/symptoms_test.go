package vllm

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

func TestSymptomsPointToAttributes(t *testing.T) {
	t.Parallel()
	enginetest.PointToAttributes(t, causes(), Config{})
	for _, s := range causes() {
		if len(s.Settings) == 0 {
			t.Errorf("%s points to no setting", s.Name)
		}
	}
}
