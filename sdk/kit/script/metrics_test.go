package script_test

import (
	"encoding/json"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// What a Score of Python says beside its value is in the groups, in the block's metrics and in evaluations.
func TestMetricsOfScoresInPython(t *testing.T) {
	def := define(t, load(t, "words.py"))
	config, api := scripttest.Body(t, def, map[string]cty.Value{"drop_uninformative": cty.False})
	b := plugintest.Harness(t, def)
	b.Start(config)
	b.Ready()
	for _, g := range api.Wait(2) {
		plugintest.CheckGroup(t, g)
		var said [][]environment.Message
		if err := json.Unmarshal(g.Messages, &said); err != nil {
			t.Fatal(err)
		}
		for i, conversation := range said {
			own, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
			if text := conversation[1].Content; own["length"] != float64(len([]rune(text))) || len(own) != 2 {
				t.Errorf("the metrics of %q are %v, want its length and letters", text, own)
			}
		}
	}
	reported := b.Wait("metrics", func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()["groups"] > 0 })
	if v := reported.GetMetrics().GetValues(); v["metrics/length"] <= 0 {
		t.Errorf("reported %v, want metrics/length", v)
	}
	r, err := b.Client.Evaluate(t.Context(), &pluginpb.EvaluateRequest{Samples: 2, Temperature: 1, Limit: 1})
	if err != nil || r.GetResults()[0].GetMetrics()["length"] <= 0 {
		t.Errorf("evaluated %v, %v; want the metric length", r, err)
	}
}

// Each agent's metrics stand with its own conversation.
func TestMetricsOfRolloutsInPython(t *testing.T) {
	def := define(t, load(t, "game.py"))
	config, api := scripttest.Body(t, def, nil)
	b := plugintest.Harness(t, def)
	b.Start(config)
	with, without := 0, 0
	for _, g := range api.Wait(6) {
		own, _ := g.Overrides[0][trajectory.OverrideMetrics].(map[string]any)
		switch {
		case own == nil:
			without++ // of the agent "first", which calls score with a number
		case own["answers"] == 2.0:
			with++
		default:
			t.Errorf("the metrics are %v, want answers = 2", g.Overrides)
		}
	}
	if with == 0 || without == 0 {
		t.Errorf("%d groups with metrics and %d without; want both agents", with, without)
	}
}
