package eventlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

func TestSecretsOfOutputsStayOutOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Open(path, 1, Limits{Events: 2, Secrets: []string{"s3cret-data", "", "s3cret-control"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const outputs = `{"url":"http://h","token":"s3cret-data","control_token":"s3cret-control"}`
	if err := l.Append(&pluginpb.Event{Body: &pluginpb.Event_Outputs{Outputs: &pluginpb.Outputs{Values: []byte(
		outputs)}}}); err != nil {
		t.Fatal(err)
	}
	for range 5 { // so that the outputs are in the file alone
		if err := l.Append(&pluginpb.Event{Body: &pluginpb.Event_Log{Log: &pluginpb.Log{Message: "x"}}}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := l.Next(t.Context(), 0)
	if err != nil || string(events[0].GetOutputs().GetValues()) != outputs {
		t.Errorf("a reader of the log got %v, %v; expected the outputs as they were", events, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "s3cret") {
		t.Errorf("the file holds a secret: %q, %v", text, err)
	}
	later, err := Read(path, 0)
	if err != nil || len(later) != 6 || strings.Contains(string(later[0].GetOutputs().GetValues()), "s3cret") {
		t.Errorf("read %v, %v from the file", later, err)
	}
}
