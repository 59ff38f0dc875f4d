package state

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
)

// Surroundings is the recordable form of the meta-arguments that affect a block's process: placement, runtime,
// environment_variables and external, by these names, which no body can use. Variables and external endpoints may
// contain keys and tokens, and are reduced to keyed fingerprints, with their names where these are sensitive, too.
func Surroundings(m decode.Meta, dir Dir) (map[string]json.RawMessage, error) {
	declared := map[string]any{}
	if p := m.Placement; p != nil {
		r := m.Resources
		nodes := r.Nodes
		if nodes == 1 { // the default, which records of earlier versions do not name
			nodes = 0
		}
		declared["placement"] = filled(map[string]any{"nodes": nodes, "gpus": p.GPUs, "devices": p.Devices,
			"executor": p.Executor, "host": p.Host, "cpus": r.CPUs, "memory": int(r.Memory),
			"time_limit": int(r.TimeLimit.Seconds()), "constraints": r.Constraints, "gang": r.Gang})
	}
	if r := m.Runtime; r != nil {
		declared["runtime"] = filled(map[string]any{"python": r.Python, "requirements": r.Requirements, "venv": r.Venv})
	}
	switch {
	case len(m.Environment) == 0:
	case m.SecretNames:
		print, err := fingerprint(cty.ObjectVal(m.Environment), dir)
		if err != nil {
			return nil, fmt.Errorf("recording environment_variables: %w", err)
		}
		declared["environment_variables"] = print
	default:
		variables := map[string]any{}
		for name, v := range m.Environment {
			print, err := fingerprint(v, dir)
			if err != nil {
				return nil, fmt.Errorf("recording environment_variables.%s: %w", name, err)
			}
			variables[name] = print
		}
		declared["environment_variables"] = filled(variables)
	}
	if x := m.External; x != nil {
		values := maps.Clone(x.Values)
		if values == nil {
			values = map[string]cty.Value{}
		}
		values["endpoint"] = x.Endpoint
		print, err := fingerprint(cty.ObjectVal(values), dir)
		if err != nil {
			return nil, fmt.Errorf("recording external: %w", err)
		}
		declared["external"] = print
	}
	out := make(map[string]json.RawMessage, len(declared))
	for name, v := range declared {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", name, err)
		}
		out[name] = b
	}
	return out, nil
}

// filled drops empty values.
func filled(all map[string]any) map[string]any {
	maps.DeleteFunc(all, func(_ string, v any) bool {
		switch v := v.(type) {
		case nil:
			return true
		case int:
			return v == 0
		case string:
			return v == ""
		case []string:
			return len(v) == 0
		}
		return false
	})
	return all
}
