package sglang

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

func TestSymptomsPointToAttributes(t *testing.T) {
	t.Parallel()
	enginetest.PointToAttributes(t, causes(), Config{})
}
