package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// flatten keeps numbers; a histogram becomes one metric for each of its keys.
func flatten(metrics map[string]any) map[string]float64 {
	out := make(map[string]float64, len(metrics))
	for name, value := range metrics {
		switch v := value.(type) {
		case float64:
			out[name] = v
		case map[string]any:
			for key, n := range v {
				if f, ok := n.(float64); ok {
					out[name+"/"+key] = f
				}
			}
		}
	}
	return out
}

// describe puts what a person should know into words.
func describe(e event) (level, text string) {
	switch e.Type {
	case "warning":
		return "warn", e.Message
	case "retry":
		return "warn", fmt.Sprintf("%s: attempt %d failed: %s", e.What, e.Attempt, e.Reason)
	case "no_data":
		return "warn", fmt.Sprintf("no batch for %.0f s: %s%s", e.Seconds, e.Reason, numbered(e.Checks))
	case "skipped":
		return "warn", fmt.Sprintf("batch %s was used up without a step: %s", e.Batch, e.Reason)
	case "lease":
		if e.Outcome == "lost" {
			return "warn", fmt.Sprintf("the lease of batch %s ran out before it was acknowledged", e.Batch)
		}
	case "rejected":
		var parts []string
		for _, reason := range slices.Sorted(maps.Keys(e.Reasons)) {
			part := fmt.Sprintf("%d × %s", e.Reasons[reason], reason)
			if example := e.Examples[reason]; example != nil {
				part += fmt.Sprintf(" (such as: %v)", example)
			}
			parts = append(parts, part)
		}
		text = fmt.Sprintf("groups of batch %s were rejected: %s", e.Batch, strings.Join(parts, ", "))
		if e.SetAside != "" {
			text += "; they are kept in " + e.SetAside
		}
		return "warn", text
	case "decided":
		return "info", e.What + ": " + e.Reason
	case "solved":
		return "info", fmt.Sprintf("no batch comes any more and the reward is %.3g: the task is solved", e.Reward)
	}
	return "", ""
}

func numbered(checks []string) string {
	var b strings.Builder
	for i, c := range checks {
		fmt.Fprintf(&b, "\n%d. %s", i+1, c)
	}
	return b.String()
}
