package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
)

// An old run is shown from what its complete files came to, which are not read again, and looks as if all were.
func TestAnOldRunIsShownFromWhatIsKept(t *testing.T) {
	t.Parallel()
	dir, list := t.TempDir(), events(false)
	for i := range 2 * keptLines { // more than are kept
		list = append(list, event.Event{Type: event.LogLine, Address: trainer, Level: "info",
			Message: fmt.Sprint("line ", i)})
	}
	w, whole := &eventtest.Writer{TB: t, Dir: dir}, newRun()
	for i, e := range list {
		if w.Put(e); i == len(list)/2 || i == len(list)-9 {
			w.Save()
		}
	}
	w.Save()
	read := func(r *run, after uint64) string {
		t.Helper()
		if err := event.Read(dir, after, func(e event.Event) error { r.apply(e); return nil }); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, page := range []page{overview, blockPage} {
			s := aScreen(nil)
			s.run, s.selected, s.page, s.width, s.height, s.now = r, trainer, page, 120, 2000, r.snap.Started
			text += strings.Join(s.frame(), "\n")
		}
		return text
	}
	want := read(whole, 0)
	if !strings.Contains(want, fmt.Sprintf("line %d\n", keptLines+1)) {
		t.Fatalf("the test shows no log:\n%s", want)
	}
	segments, err := event.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b := begin(dir, time.Now().Add(time.Hour))
		if b.err != nil || b.snap.Last == 0 || b.snap.Last != b.run.snap.Last {
			t.Fatalf("the beginning ends with event %d and %d, %v", b.snap.Last, b.run.snap.Last, b.err)
		}
		if got := read(b.run, b.snap.Last); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		for _, path := range segments[:2] {
			eventtest.Spoil(t, path)
		}
	}
}
