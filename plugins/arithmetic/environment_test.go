package arithmetic

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/environment"
)

func newAdditions(t *testing.T, seed int64) *additions {
	t.Helper()
	a, err := open(t.Context(), environment.Setup[Config]{Config: Config{Seed: seed}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEveryTrainingProblemComesOnceAndNoOther(t *testing.T) {
	t.Parallel()
	a, seen := newAdditions(t, 3), map[any]bool{}
	for range Problems(Train) {
		task, err := a.Next(t.Context())
		if err != nil || seen[task.Data] || task.Prompt != task.Data.(Problem).Prompt() {
			t.Fatalf("task %+v, error %v, seen before %v", task, err, seen[task.Data])
		}
		seen[task.Data] = true
	}
	held, err := a.EvaluationTasks(t.Context())
	if err != nil || len(held) == 0 {
		t.Fatal("no held-out tasks", err)
	}
	for _, task := range held {
		if seen[task.Data] {
			t.Errorf("%v is trained on and evaluated", task.Data)
		}
	}
	first, _ := newAdditions(t, 3).Next(t.Context())
	if again, _ := a.Next(t.Context()); again.Data != first.Data {
		t.Error("the order does not begin again after the last problem")
	}
	if other, _ := newAdditions(t, 4).Next(t.Context()); other.Data == first.Data {
		t.Error("another seed gives the same order")
	}
}

func TestScoreNeedsACompleteRightAnswer(t *testing.T) {
	t.Parallel()
	a := newAdditions(t, 0)
	for _, test := range []struct {
		text, finish string
		want         float64
	}{{"42", "stop", 1}, {"42", "length", 0}, {"41", "stop", 0}} {
		got, err := a.Score(t.Context(), task(Problem{7, 35}), environment.Completion{Text: test.text,
			Finish: test.finish})
		if err != nil || got != test.want {
			t.Errorf("%q (%s) scores %v, %v; want %v", test.text, test.finish, got, err, test.want)
		}
	}
	if _, err := a.Score(t.Context(), environment.Task{Prompt: "1"}, environment.Completion{}); err == nil {
		t.Error("a task of another environment was scored")
	}
}

func TestDefaultsFitTheTask(t *testing.T) {
	t.Parallel()
	def := Definition()
	for name, want := range map[string]string{"group_size": "16", "max_tokens": "4"} {
		if got := def.Schema.Attribute(name).Default.AsBigFloat().String(); got != want {
			t.Errorf("default of %s is %s, want %s", name, got, want)
		}
	}
	if !def.Schema.Attribute("drop_uninformative").Default.False() {
		t.Error("groups with equal scores would not be sent")
	}
}
