package environment

import (
	"os"
	"path/filepath"
	"testing"
)

// A place goes on behind what the trainer has used, whatever became of the groups that waited.
func TestAPlaceIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order         string
		step, waiting int
		want          int64
	}{
		"the groups wait still":        {order: "a", step: 2, waiting: 3, want: 9},
		"they are lost":                {order: "a", step: 2, waiting: 0, want: 6},
		"an older checkpoint":          {order: "a", step: 1, waiting: 0, want: 4},
		"older, and all wait":          {order: "a", step: 1, waiting: 99, want: 9},
		"the trainer begins anew":      {order: "a", step: 0, waiting: 0, want: 0},
		"another data set":             {order: "b", step: 2, waiting: 3, want: 0},
		"a step that was not recorded": {order: "a", step: 7, waiting: 0, want: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "place.json")
			warned := 0
			log := func(string, string) { warned++ }
			p := openPlace(path, "a", log)
			if n := p.resume(0, 0); n != 0 {
				t.Fatalf("a new place begins at %d", n)
			}
			for range 10 {
				p.begin()
			}
			for _, task := range []int64{1, 2, 3, 4, 5, 6} {
				p.end(task)
			}
			p.at(0, 6)
			p.at(1, 2) // four are used
			for _, task := range []int64{7, 9, 8} {
				p.end(task) // the tenth is in flight
			}
			p.at(2, 3) // six
			if err := p.save(true); err != nil {
				t.Fatal(err)
			}
			again := openPlace(path, c.order, log)
			if (warned == 1) != (c.order != "a") || warned > 1 {
				t.Errorf("%d warnings that the tasks begin anew", warned)
			}
			if n := again.resume(c.step, c.waiting); n != c.want {
				t.Errorf("goes on behind %d tasks, want %d", n, c.want)
			}
			if n := again.begin(); n != c.want+1 {
				t.Errorf("the next task is %d, want %d", n, c.want+1)
			}
		})
	}
}

func TestAPlaceThatCannotBeReadIsForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "place.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	told := 0
	if n := openPlace(path, "", func(string, string) { told++ }).resume(3, 3); n != 0 || told != 1 {
		t.Errorf("goes on behind %d tasks, told %d times", n, told)
	}
}
