package addr_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/addr"
)

func moveOf(t *testing.T, from, to string) addr.Move {
	t.Helper()
	a, err := addr.ParseTarget(from)
	if err != nil {
		t.Fatal(err)
	}
	b, err := addr.ParseTarget(to)
	if err != nil {
		t.Fatal(err)
	}
	m, err := addr.NewMove(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		in    string // the module that declares the moves
		moves string // FROM > TO, several with commas
		at    string
		want  string // empty: it stays
	}{
		{"name", "", "trainer.tiny.a > trainer.tiny.b", "trainer.tiny.a", "trainer.tiny.b"},
		{"another block", "", "trainer.tiny.a > trainer.tiny.b", "trainer.tiny.c", ""},
		{"every instance", "", "trainer.tiny.a > trainer.tiny.b", `trainer.tiny.a["x"]`, `trainer.tiny.b["x"]`},
		{"count added", "", "trainer.tiny.a > trainer.tiny.a[0]", "trainer.tiny.a", "trainer.tiny.a[0]"},
		{"count added, an instance", "", "trainer.tiny.a > trainer.tiny.a[0]", "trainer.tiny.a[0]", ""},
		{"count removed", "", "trainer.tiny.a[0] > trainer.tiny.a", "trainer.tiny.a[0]", "trainer.tiny.a"},
		{"count removed, another", "", "trainer.tiny.a[0] > trainer.tiny.a", "trainer.tiny.a[1]", ""},
		{"chain", "", "trainer.tiny.b > trainer.tiny.c,trainer.tiny.a > trainer.tiny.b", "trainer.tiny.a",
			"trainer.tiny.c"},
		{"circle", "", "trainer.tiny.a > trainer.tiny.b,trainer.tiny.b > trainer.tiny.a", "trainer.tiny.a", ""},
		{"into a module", "", "trainer.tiny.a > module.m.trainer.tiny.a", "trainer.tiny.a", "module.m.trainer.tiny.a"},
		{"out of a module", "", `module.m["x"].trainer.tiny.a > trainer.tiny.a`, `module.m["x"].trainer.tiny.a`,
			"trainer.tiny.a"},
		{"module", "", "module.m > module.n", "module.m.inner.trainer.tiny.a[1]", "module.n.inner.trainer.tiny.a[1]"},
		{"module, every instance", "", "module.m > module.n", `module.m["x"].trainer.tiny.a`,
			`module.n["x"].trainer.tiny.a`},
		{"module gets a key", "", `module.m > module.m["x"]`, "module.m.trainer.tiny.a", `module.m["x"].trainer.tiny.a`},
		{"module with a key", "", `module.m > module.m["x"]`, `module.m["x"].trainer.tiny.a`, ""},
		{"longer name", "", "module.m > module.n", "module.mm.trainer.tiny.a", ""},
		{"declared by a module", `m["x"]`, "trainer.tiny.a > module.in.trainer.tiny.b", `module.m["x"].trainer.tiny.a`,
			`module.m["x"].in.trainer.tiny.b`},
		{"declared by another instance", `m["x"]`, "trainer.tiny.a > trainer.tiny.b", `module.m["y"].trainer.tiny.a`, ""},
		{"module and block", "", "module.m > module.n,module.n.trainer.tiny.a > trainer.tiny.a",
			"module.m.trainer.tiny.a", "trainer.tiny.a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var moves []addr.Move
			for pair := range strings.SplitSeq(c.moves, ",") {
				from, to, _ := strings.Cut(pair, " > ")
				moves = append(moves, moveOf(t, from, to).In(c.in))
			}
			at, err := addr.Parse(c.at)
			if err != nil {
				t.Fatal(err)
			}
			to, ok := addr.Follow(moves, at)
			got := ""
			if ok {
				got = to.String()
			}
			if got != c.want {
				t.Errorf("it is at %q, want %q", got, c.want)
			}
		})
	}
}

func TestNewMoveRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, want string }{
		{"same", "trainer.tiny.a", "trainer.tiny.a", "same address"},
		{"block and module", "trainer.tiny.a", "module.m", "a block and the other a module"},
		{"another plugin", "trainer.tiny.a", "trainer.grpo.a", "trainer.grpo"},
		{"another kind", "trainer.tiny.a", "inference.tiny.a", "inference.tiny"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from, err := addr.ParseTarget(c.from)
			if err != nil {
				t.Fatal(err)
			}
			to, err := addr.ParseTarget(c.to)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := addr.NewMove(from, to); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
