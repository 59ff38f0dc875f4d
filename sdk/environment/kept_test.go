package environment

import "testing"

// What is kept of a task is what was sent: a text as it is, or a conversation.
func TestWhatWasSentIsKept(t *testing.T) {
	t.Parallel()
	given := []Message{{Role: "system", Content: "Answer."}, {Role: "user", Content: "1+1="}}
	for name, c := range map[string]struct {
		task             Task
		prompt, messages string
	}{
		"a text": {Task{Prompt: "1+1="}, "1+1=", ""},
		"a conversation": {Task{Messages: given}, "1+1=",
			`[{"role":"system","content":"Answer."},{"role":"user","content":"1+1="}]`},
		"made during the rollout": {Task{}, "", ""},
	} {
		out := (&rolled{}).result(c.task, sampling{})
		if out.Prompt != c.prompt || string(out.Messages) != c.messages {
			t.Errorf("%s: prompt %q, messages %s", name, out.Prompt, out.Messages)
		}
	}
}
