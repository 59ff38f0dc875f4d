package plan_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

func TestMoves(t *testing.T) {
	t.Parallel()
	move := func(from, to string) schema.Moved {
		m, err := addr.NewMove(addr.Target{Block: at(from)}, addr.Target{Block: at(to)})
		if err != nil {
			t.Fatal(err)
		}
		return schema.Moved{Move: m}
	}
	ab, bc := move("trainer.tiny.a", "trainer.tiny.b"), move("trainer.tiny.b", "trainer.tiny.c")
	for _, c := range []struct {
		name     string
		moved    []schema.Moved
		recorded []string
		want     string // FROM>TO, sorted by FROM
		finding  string
	}{
		{"one", []schema.Moved{ab}, []string{"trainer.tiny.a"}, "trainer.tiny.a>trainer.tiny.b", ""},
		{"not recorded", []schema.Moved{ab}, []string{"trainer.tiny.x"}, "", ""},
		{"done", []schema.Moved{ab}, []string{"trainer.tiny.b"}, "", ""},
		{"taken", []schema.Moved{ab}, []string{"trainer.tiny.a", "trainer.tiny.b"}, "",
			"trainer.tiny.a does not move here: the run has trainer.tiny.b at this address"},
		{"both to one", []schema.Moved{ab, bc}, []string{"trainer.tiny.a", "trainer.tiny.b"},
			"trainer.tiny.a>trainer.tiny.c", "trainer.tiny.b does not move here: the run has trainer.tiny.a"},
		{"chain", []schema.Moved{bc, ab}, []string{"trainer.tiny.a"}, "trainer.tiny.a>trainer.tiny.c", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rec := &state.Run{Blocks: map[addr.Block]*state.Block{}}
			for _, a := range c.recorded {
				rec.Blocks[at(a)] = &state.Block{Attempt: 1}
			}
			moves, findings := plan.Moves(&schema.Recipe{Moved: c.moved}, rec)
			got := ""
			for from, to := range moves {
				got += from.String() + ">" + to.String()
			}
			if got != c.want {
				t.Errorf("it moves %q, want %q", got, c.want)
			}
			if (c.finding == "") != (len(findings) == 0) ||
				len(findings) > 0 && !strings.Contains(findings[0].Summary, c.finding) {
				t.Errorf("the findings are %+v, want %q", findings, c.finding)
			}
		})
	}
}
