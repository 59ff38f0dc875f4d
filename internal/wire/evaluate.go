package wire

import (
	"encoding/json"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// EncodeTaskScores sets the scores of held-out tasks in an answer of Evaluate.
func EncodeTaskScores(m *pluginpb.EvaluateResponse, s sdk.TaskScores) {
	m.Tasks, m.PolicyVersion = int64(s.Tasks), s.PolicyVersion
	for _, r := range s.Results {
		t := &pluginpb.TaskScores{Task: int64(r.Task), Digest: r.Digest, Prompt: r.Prompt, Scores: r.Scores,
			Metrics: r.Metrics, Failed: r.Failed, Messages: string(r.Messages), Expected: r.Expected,
			PolicyVersions: r.Versions, Group: r.Group}
		for _, c := range r.Completions {
			t.Completions = append(t.Completions, &pluginpb.EvaluatedCompletion{Text: c.Text, Score: c.Score,
				Metrics: c.Metrics, FinishReason: c.Finish, Failed: c.Failed, Tokens: int64(c.Tokens),
				Messages: string(c.Messages), Agent: c.Agent})
		}
		m.Results = append(m.Results, t)
	}
	Readable(m)
}

// DecodeTaskScores reads the scores of held-out tasks from an answer of Evaluate.
func DecodeTaskScores(m *pluginpb.EvaluateResponse) sdk.TaskScores {
	s := sdk.TaskScores{Tasks: int(m.GetTasks()), PolicyVersion: m.GetPolicyVersion()}
	for _, t := range m.GetResults() {
		r := sdk.TaskScore{Task: int(t.GetTask()), Digest: t.GetDigest(), Prompt: t.GetPrompt(),
			Scores: t.GetScores(), Metrics: t.GetMetrics(), Failed: t.GetFailed(), Messages: raw(t.GetMessages()),
			Expected: t.GetExpected(), Versions: t.GetPolicyVersions(), Group: raw(string(t.GetGroup()))}
		if len(r.Versions) != 2 {
			r.Versions = nil
		}
		for _, c := range t.GetCompletions() {
			r.Completions = append(r.Completions, sdk.EvaluatedCompletion{Text: c.GetText(), Score: c.Score,
				Metrics: c.GetMetrics(), Finish: c.GetFinishReason(), Failed: c.GetFailed(), Tokens: int(c.GetTokens()),
				Messages: raw(c.GetMessages()), Agent: c.GetAgent()})
		}
		s.Results = append(s.Results, r)
	}
	return s
}

// raw is a text of JSON; nil when it is none. A plugin may be any program.
func raw(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
