package environment

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// A prompt is too long only where the server says so.
func TestOtherRefusalsAreNotCalledTooLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text          string
		short         error // of the short question
		long, ofGroup bool
	}{
		"vLLM":        {text: "This model's maximum context length is 40 tokens. However, you requested 80", long: true},
		"tokens":      {text: "80 tokens are more than the 40 of this model", long: true},
		"a character": {text: `the character "é" is not in the alphabet`, ofGroup: true},
		"tiny": {text: `prompt: character 'é' at byte 2 is not in the model's alphabet " !\"#$%&'()*+,-./0123456789"`,
			ofGroup: true},
		"all": {text: "no such model", short: &refusal{400, "no such model"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := explainRefusals(func(_ context.Context, q question, _ sampling) (*sample, error) {
				if q.text == "?" {
					return nil, c.short
				}
				return nil, &refusal{400, c.text}
			})
			_, err := ask(t.Context(), question{text: "a prompt"}, sampling{N: 4})
			var long *tooLong
			var group *unscored
			var refused *refusal
			if errors.As(err, &long) != c.long || errors.As(err, &group) != c.ofGroup {
				t.Errorf("%T: %v", err, err)
			}
			if !c.ofGroup && !errors.As(err, &refused) {
				t.Errorf("%v is no refusal", err)
			}
		})
	}
}

func TestPrefillAndTools(t *testing.T) {
	t.Parallel()
	turns := []Message{{Role: "user", Content: "2+2="}, {Role: "assistant", Content: "<think>"}}
	if c := (question{messages: turns}).conversation(); c.Continue == nil || !*c.Continue || c.Begin == nil || *c.Begin {
		t.Errorf("a prompt that ends in a turn of the model: %+v", c)
	}
	c := question{messages: turns[:1], template: Template{Tools: []byte(`[{}]`)}}.conversation()
	if c.Continue != nil || c.Begin != nil || c.ToolChoice != "none" {
		t.Errorf("a prompt that ends in a turn of the user: %+v", c)
	}
}

func TestScoresThatDifferByRoundingAreEqual(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scores []float64
		want   bool
	}{
		"rounding":   {[]float64{0.1 + 0.2, 0.3, 0.3}, true},
		"around 0":   {[]float64{0.1 + 0.2 - 0.3, 0}, true},
		"small":      {[]float64{0, 1e-6}, false},
		"large":      {[]float64{1e12, 1e12 + 0.001}, true},
		"one point":  {[]float64{1, 0}, false},
		"two thirds": {[]float64{1. / 3, 0.33333333333333337}, true},
	} {
		if got := trajectory.EqualScores(c.scores); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The calls of tools in a conversation reach the server as they are.
func TestCallsOfToolsAreSent(t *testing.T) {
	t.Parallel()
	const said = `[{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",` +
		`"function":{"name":"add","arguments":"{}"}}]},{"role":"tool","content":"2","tool_call_id":"c","name":"add"}]`
	var turns []Message
	if err := json.Unmarshal([]byte(said), &turns); err != nil {
		t.Fatal(err)
	}
	if body, err := json.Marshal(turns); err != nil || string(body) != said {
		t.Errorf("sent %s (%v), want %s", body, err, said)
	}
}
