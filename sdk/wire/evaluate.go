package wire

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// EncodeTaskScores sets the scores of held-out tasks in an answer of Evaluate.
func EncodeTaskScores(m *pluginpb.EvaluateResponse, s sdk.TaskScores) {
	m.Tasks, m.PolicyVersion = int64(s.Tasks), s.PolicyVersion
	for _, r := range s.Results {
		m.Results = append(m.Results, &pluginpb.TaskScores{Task: int64(r.Task), Digest: r.Digest, Prompt: r.Prompt,
			Scores: r.Scores, Metrics: r.Metrics, Failed: r.Failed})
	}
	Readable(m)
}

// DecodeTaskScores reads the scores of held-out tasks from an answer of Evaluate.
func DecodeTaskScores(m *pluginpb.EvaluateResponse) sdk.TaskScores {
	s := sdk.TaskScores{Tasks: int(m.GetTasks()), PolicyVersion: m.GetPolicyVersion()}
	for _, t := range m.GetResults() {
		s.Results = append(s.Results, sdk.TaskScore{Task: int(t.GetTask()), Digest: t.GetDigest(), Prompt: t.GetPrompt(),
			Scores: t.GetScores(), Metrics: t.GetMetrics(), Failed: t.GetFailed()})
	}
	return s
}
