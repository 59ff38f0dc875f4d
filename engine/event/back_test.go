package event_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
)

// segmented writes a log of three files, the last of which ends within a line, and one line of a later format.
func segmented(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	line := `{"v":1,"seq":%d,"type":"notice","message":"%[1]d"}` + "\n"
	for first, text := range map[int]string{
		1:  fmt.Sprintf(line, 1) + `{"v":2,"seq":2,"type":"notice"}` + "\n" + fmt.Sprintf(line, 3),
		4:  `{"v":1,"seq":3,"type":"log_file"}` + "\n" + fmt.Sprintf(line, 4) + fmt.Sprintf(line, 5),
		6:  `{"v":1,"seq":5,"type":"log_file"}` + "\n" + fmt.Sprintf(line, 6) + `{"v":1,"seq":7,"ty`,
		20: "",
	} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.jsonl", first)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func backwards(t *testing.T, dir string, wanted func([]byte) bool) (out []event.Event) {
	t.Helper()
	collect := func(e event.Event) error { out = append(out, e); return nil }
	if err := event.Back(dir, event.Pick{Text: wanted}, collect); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(out)
	return out
}

func TestBackReadsWhatReadReads(t *testing.T) {
	t.Parallel()
	dir := segmented(t)
	every := func([]byte) bool { return true }
	for removed := range 4 { // the oldest files of a long log
		if got, want := backwards(t, dir, every), all(t, dir, 0); !reflect.DeepEqual(got, want) {
			t.Errorf("without the oldest %d files: got\n%+v\nwant\n%+v", removed, got, want)
		}
		if err := os.Remove(must(event.Segments(dir))[0]); err != nil {
			t.Fatal(err)
		}
	}
	if got := backwards(t, dir+"/none", every); got != nil {
		t.Errorf("of no log: %+v", got)
	}
}

func must(segments []string, err error) []string {
	if err != nil {
		panic(err)
	}
	return segments
}

func TestBackReadsOnlyWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	dir := segmented(t)
	path := must(event.Segments(dir))[0]
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), `{"v":2`, `{"v":`, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := backwards(t, dir, func(line []byte) bool { return bytes.Contains(line, []byte(`"1"`)) })
	if len(got) != 1 || got[0].Seq != 1 {
		t.Errorf("the lines that are wanted: %+v", got)
	}

	enough, n := errors.New("enough"), 0
	some := func(event.Event) error {
		if n++; n == 4 { // the last one before the damaged line
			return enough
		}
		return nil
	}
	if err := event.Back(dir, event.Pick{Text: func([]byte) bool { return true }}, some); !errors.Is(err, enough) {
		t.Errorf("got %v, want what the function returned", err)
	}
	err = event.Back(dir, event.Pick{Text: func([]byte) bool { return true }}, some)
	if err == nil || !strings.Contains(err.Error(), path+" is damaged at line 2") {
		t.Errorf("got %v, want the place of the damaged line", err)
	}
}

func TestLastIsTheNewest(t *testing.T) {
	t.Parallel()
	dir := segmented(t)
	if seq, err := event.Last(dir); err != nil || seq != 6 {
		t.Errorf("the newest event is %d (%v), want 6", seq, err)
	}
	if seq, err := event.Last(dir + "/none"); err != nil || seq != 0 {
		t.Errorf("the newest event of no log is %d (%v)", seq, err)
	}
}

func TestReadLinesPassesOverLines(t *testing.T) {
	t.Parallel()
	dir := segmented(t)
	var got []uint64
	err := event.ReadLines(dir, 3, func(line []byte) bool { return !bytes.Contains(line, []byte(`"message":"5"`)) },
		func(e event.Event) error { got = append(got, e.Seq); return nil })
	if err != nil || !slices.Equal(got, []uint64{4, 6}) {
		t.Errorf("got events %v (%v), want 4 and 6", got, err)
	}
}
