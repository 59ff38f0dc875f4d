package engine

import (
	"errors"
	"reflect"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

type settings struct {
	Model     string   `recipe:"model"`
	Dtype     string   `recipe:"dtype" default:"auto"`
	Quantized string   `recipe:"quantization"`
	Loading   string   `recipe:"load_format"`
	Parser    string   `recipe:"tool_call_parser"`
	Reasoning string   `recipe:"reasoning_parser"`
	Tensor    int64    `recipe:"tensor_parallel_size" default:"1"`
	Batched   *int64   `recipe:"max_num_batched_tokens"`
	Extra     []string `recipe:"extra_args"`
	LimitSettings
}

// A failure of a server points to the setting of the recipe that it is about: the one that the message names or quotes,
// else the likeliest of those that the recipe sets, and to none where that would be a guess.
func TestAFailurePointsToItsSetting(t *testing.T) {
	t.Parallel()
	batched := int64(16)
	config := settings{Model: "./models/none", Dtype: "auto", Quantized: "nosuch", Parser: "hermes", Reasoning: "qwen9",
		Tensor: 1, Batched: &batched, Extra: []string{"--attention-backend", "NOSUCH"}}
	const refused = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
	at := cty.GetAttrPath
	for name, c := range map[string]struct {
		log  string
		want cty.Path
	}{
		"the only one":           {"HFValidationError: Repo id must be in the form 'a/b'", at("model")},
		"the one that is quoted": {"KeyError: 'invalid reasoning parser: qwen9 (chose from {a})'", at("reasoning_parser")},
		"a flag":                 {"main.py: error: argument --quantization/-q: invalid choice: 'x'", at("quantization")},
		"a flag of extra_args":   {"main.py: error: argument --attention-backend: bad", at("extra_args")},
		"a value of a class":     {refused + "  Value error, Unknown method: nosuch. Must be one", at("quantization")},
		"a name in a class": {refused + "  Value error, max_num_batched_tokens (16) is too small",
			at("max_num_batched_tokens")},
		"a field of a class":      {refused + "quantization\n  Input should be 'a' or 'b'", at("quantization")},
		"what the recipe lacks":   {refused + "  Value error, hidden_size is not right", nil},
		"a part of a longer word": {refused + "  Value error, hermes_3 is not right", nil},
		"a default":               {refused + "  Value error, dtype auto is not right", nil},
		"the interpreter":         {"ModuleNotFoundError: No module named 'stub'", at("runtime").GetAttr("python")},
		"the machine":             {"OSError: [Errno 28] No space left on device", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Diagnosis{Title: "Stub", Symptoms: Symptoms(nil, Software{Title: "Stub", Module: "stub"}),
				given: settingsOf(sdk.Request[settings]{
					Config: config, Block: sdk.Block{Runtime: sdk.Runtime{Python: "/venv/bin/python"}}})}
			var e *sdk.Error
			err := d.Explain(errors.New("exit status 1"), c.log+"\n", false)
			if !errors.As(err, &e) || !reflect.DeepEqual(e.Path, c.want) {
				t.Errorf("%+v points to %#v, want %#v", e, e.Path, c.want)
			}
		})
	}
}
