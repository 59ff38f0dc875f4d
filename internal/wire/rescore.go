package wire

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// EncodeRecorded makes the request to score a recorded group again.
func EncodeRecorded(g sdk.RecordedGroup) *pluginpb.RescoreRequest {
	m := &pluginpb.RescoreRequest{Task: g.Task, Expected: g.Expected, Messages: g.Messages}
	for _, c := range g.Completions {
		tokens := make([]int64, len(c.Tokens))
		for i, id := range c.Tokens {
			tokens[i] = int64(id)
		}
		m.Completions = append(m.Completions, &pluginpb.RecordedCompletion{Text: c.Text, FinishReason: c.Finish,
			Stop: c.Stop, Tokens: tokens, Logprobs: c.Logprobs, Messages: string(c.Messages)})
	}
	return Readable(m)
}

// DecodeRecorded reads such a request.
func DecodeRecorded(m *pluginpb.RescoreRequest) sdk.RecordedGroup {
	g := sdk.RecordedGroup{Task: raw(string(m.GetTask())), Expected: m.GetExpected(),
		Messages: raw(string(m.GetMessages()))}
	for _, c := range m.GetCompletions() {
		tokens := make([]int, len(c.GetTokens()))
		for i, id := range c.GetTokens() {
			tokens[i] = int(id)
		}
		g.Completions = append(g.Completions, sdk.RecordedCompletion{Text: c.GetText(), Finish: c.GetFinishReason(),
			Stop: c.GetStop(), Tokens: tokens, Logprobs: c.GetLogprobs(), Messages: raw(c.GetMessages())})
	}
	return g
}

// EncodeRescored makes the answer.
func EncodeRescored(g sdk.RescoredGroup) *pluginpb.RescoreResponse {
	m := &pluginpb.RescoreResponse{Unable: g.Unable}
	for _, c := range g.Completions {
		m.Completions = append(m.Completions, &pluginpb.RescoredCompletion{Score: c.Score, Failed: c.Failed,
			Metrics: c.Metrics})
	}
	return Readable(m)
}

// DecodeRescored reads an answer.
func DecodeRescored(m *pluginpb.RescoreResponse) sdk.RescoredGroup {
	g := sdk.RescoredGroup{Unable: m.GetUnable()}
	for _, c := range m.GetCompletions() {
		g.Completions = append(g.Completions, sdk.RescoredCompletion{Score: c.Score, Failed: c.GetFailed(),
			Metrics: c.GetMetrics()})
	}
	return g
}
