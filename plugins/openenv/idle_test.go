package openenv

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestSettingsOfAnotherActionFormatAreTold(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"auto": "", "text": "", "json": "action_field action_pattern", "tools": "action_field action_pattern",
	} {
		var got []string
		for _, p := range (Config{ActionFormat: format, ActionField: "move", ActionPattern: "<(.*)>"}).Validate() {
			if p.Warning && strings.HasSuffix(p.Summary, "has no effect") {
				got = append(got, spec.PathString(p.Path))
			}
		}
		if found := strings.Join(got, " "); found != want {
			t.Errorf("%s: %q, want %q", format, found, want)
		}
	}
}
