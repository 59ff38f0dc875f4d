package openenv

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/sdk/environment"
)

// text is an observation as the model reads it.
func (c Config) text(observation map[string]json.RawMessage) (string, error) {
	var parts []string
	if len(c.ObservationFields) > 0 {
		for _, name := range c.ObservationFields {
			value, ok := observation[name]
			if !ok {
				return "", fmt.Errorf("observation_fields names %s, and the observation has %s", name, keys(observation))
			}
			if s := plain(value); s != "" {
				parts = append(parts, s)
			}
		}
		return environment.Shorten(strings.Join(parts, "\n"), int(c.MaxObservationChars)), nil
	}
	rest := map[string]json.RawMessage{}
	for name, value := range observation {
		if text := string(value); name != "metadata" && text != "null" {
			rest[name] = value
		}
	}
	if len(rest) == 1 {
		for _, value := range rest {
			return environment.Shorten(plain(value), int(c.MaxObservationChars)), nil
		}
	}
	if len(rest) == 0 {
		rest = observation
	}
	data, err := json.Marshal(rest)
	return environment.Shorten(string(data), int(c.MaxObservationChars)), err
}

func keys(m map[string]json.RawMessage) string {
	data, err := json.Marshal(m)
	if err != nil {
		return "something that is no JSON"
	}
	return brief(data)
}

// plain is a text as it is, and anything else as JSON; empty for null.
func plain(value json.RawMessage) string {
	var text string
	switch {
	case string(value) == "null":
		return ""
	case json.Unmarshal(value, &text) == nil:
		return text
	}
	return string(value)
}
