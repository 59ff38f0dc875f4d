package eventlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestSecretsOfOutputsStayOutOfTheFile(t *testing.T) {
	t.Parallel()
	// As long as real tokens: a placeholder is of another length.
	data, control := strings.Repeat("s3cret", 7)+"-data", strings.Repeat("s3cret", 7)+"-control"
	schema, err := spec.Of(struct {
		URL     string `recipe:"url"`
		Token   string `recipe:"token" sensitive:"true"`
		Control string `recipe:"control_token" sensitive:"true"`
	}{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Open(path, 1, schema, Limits{Events: 2, Secrets: []string{data, "", control}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	outputs := cty.ObjectVal(map[string]cty.Value{"url": cty.StringVal("http://h/t/" + data),
		"token": cty.StringVal(data).Mark("sensitive"), "control_token": cty.StringVal(control)})
	if err := l.Append(event.Outputs{Values: outputs}); err != nil {
		t.Fatal(err)
	}
	for range 5 { // so that the outputs are in the file alone
		if err := l.Append(event.LogLine{Message: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	plain, _ := outputs.UnmarkDeep()
	events, err := l.Next(t.Context(), 0)
	if err != nil || !values(events[0]).RawEquals(plain) {
		t.Errorf("a reader of the log got %v, %v; expected the outputs as they were", events, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "s3cret") {
		t.Errorf("the file holds a secret: %q, %v", text, err)
	}
	later, err := Read(path, 0, schema)
	if err != nil || len(later) != 6 {
		t.Fatalf("read %v, %v from the file", later, err)
	}
	if got := values(later[0]).GetAttr("url").AsString(); got != "http://h/t/(secret 1 of this block)" {
		t.Errorf("the url in the file is %s", got)
	}

	// What a prepared block is given at its start: one contains an earlier one, whose placeholder stays the same.
	l.Hide([]string{data, "model-" + data})
	given := outputs.AsValueMap()
	given["url"] = cty.StringVal("model-" + data + " " + data)
	if err := l.Append(event.Outputs{Values: cty.ObjectVal(given)}); err != nil {
		t.Fatal(err)
	}
	later, err = Read(path, 6, schema)
	if err != nil || len(later) != 1 {
		t.Fatalf("read %v, %v from the file", later, err)
	}
	want := "(secret 3 of this block) (secret 1 of this block)"
	if got := values(later[0]).GetAttr("url").AsString(); got != want {
		t.Errorf("the url in the file is %s, want %s", got, want)
	}
}

func values(e event.Event) cty.Value {
	if outputs, ok := e.Body.(event.Outputs); ok {
		return outputs.Values
	}
	return cty.NilVal
}
