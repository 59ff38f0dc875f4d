package reward

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A row whose conversation has calls of tools, as TRL takes it, is sampled from.
func TestRowsWithCallsOfTools(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	dir := folder(t, "")
	row := `{"letter": "a", "prompt": [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": null, ` +
		`"tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}, {"role": "tool", "name": "add", ` +
		`"content": "2"}]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(strings.Repeat(row, 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	def := Plugin()
	config, api := body(t, def, map[string]cty.Value{"function": cty.StringVal("rewards.py:talk"),
		"drop_uninformative": cty.False})
	if err := os.WriteFile(filepath.Join(dir, "rewards.py"), []byte(rewards+`
def talk(prompts, completions, **kwargs):
    call = prompts[0][1]["tool_calls"][0]["function"]
    assert call == {"name": "add", "arguments": {"a": 1}} and prompts[0][2]["role"] == "tool", prompts[0]
    return [float(len(c[0]["content"])) for c in completions]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	block := plugintest.Harness(t, def)
	block.Start(config, in(dir), scripttest.With(python))
	g := api.Wait(1)[0]
	said := scripttest.Conversations(t, g)[0]
	for _, c := range block.Rescore(g).GetCompletions() { // the function asserts that it gets the same
		if c.Score == nil {
			t.Errorf("scored again: %v", c)
		}
	}
	if len(said) != 4 || said[2].Role != "tool" || said[2].Content != "2" {
		t.Errorf("the model was sent %+v", said)
	}
}
