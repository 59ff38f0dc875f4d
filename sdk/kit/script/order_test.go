package script

import (
	"encoding/json"
	"testing"
)

// The tasks begin anew when a setting changes, and not for another address of a model or a corrected function.
func TestWhatTheOrderDependsOn(t *testing.T) {
	t.Parallel()
	const given = `{"data": "a.jsonl", "seed": 1, "judge": {"base_url": "http://127.0.0.1:1/v1", "api_key": "a"},
		"reward": {"file": "/run/1/rewards.py", "function": "right", "original": "/r/rewards.py"},
		"more": [{"function": {"file": "/run/1/rewards.py", "function": "right", "original": "/r/rewards.py"}, "weight": 1}]}`
	order := func(text string) string {
		t.Helper()
		var settings map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			t.Fatal(err)
		}
		return orderOf(settings)
	}
	before := order(given)
	for name, c := range map[string]struct {
		changed string // over the settings above
		same    bool
	}{
		"another data set": {changed: `"data": "b.jsonl"`},
		"another seed":     {changed: `"seed": 2`},
		"a served model":   {same: true, changed: `"judge": {"base_url": "http://127.0.0.1:2/v1", "api_key": "b"}`},
		"a function": {same: true,
			changed: `"reward": {"file": "/run/2/rewards.py", "function": "right", "original": "/r/rewards.py"}`},
		"a function of several": {same: true, changed: `"more": [{"function": {"file": "/run/2/rewards.py",
			"function": "right", "original": "/r/rewards.py"}, "weight": 1}]`},
		"a function of a module": {same: true, changed: `"reward": {"file": "/r", "function": "right", "module": "m"}`},
		"a weight": {changed: `"more": [{"function": {"file": "/run/1/rewards.py", "function": "right",
			"original": "/r/rewards.py"}, "weight": 2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := order(given[:len(given)-1] + ", " + c.changed + "}")
			if (after == before) != c.same {
				t.Errorf("the order is the same: %v, want %v", after == before, c.same)
			}
		})
	}
}
