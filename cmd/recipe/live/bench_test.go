package live

import (
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

func BenchmarkEvent(b *testing.B) {
	list := events(false)
	r := newRun()
	for i := 0; b.Loop(); i++ {
		e := list[i%len(list)]
		e.Seq = uint64(i + 1)
		r.apply(e)
	}
}

func BenchmarkFrame(b *testing.B) {
	s := aScreen(events(false))
	s.width, s.height, s.style = 200, 50, view.Style{Terminal: true, Color: true}
	for b.Loop() {
		s.frame()
	}
}
