package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string, limits Limits) *Writer {
	t.Helper()
	w, err := NewWriter(dir, limits, func(err error) { t.Errorf("the record cannot be written: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t testing.TB, dir string) *Reader {
	t.Helper()
	r, err := NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if _, err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Readers of other versions depend on these very lines.
func TestTheFormat(t *testing.T) {
	t.Parallel()
	dir, version := t.TempDir(), int64(3)
	w := open(t, dir, Limits{Bytes: 1 << 30})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w.Post(Line{ID: 7, Time: at, Environment: "sums", Sequences: 2, Tokens: 9, Longest: 5, Versions: []int64{2, 3}},
		[]byte(`{"tokens":[[1,2],[1,2]],"scores":[1,0.5]}`))
	w.Deliver(Line{ID: 7, Time: at, Step: 4, Version: &version})
	w.Train(Line{ID: 7, Time: at, Step: 4, Version: &version}, Computed{Advantages: []byte{0, 0, 128, 63}})
	w.Drop(Line{ID: 8, Time: at, Reason: "stale"})
	must(t, w.Close())
	text, err := os.ReadFile(filepath.Join(dir, "00000001.jsonl"))
	must(t, err)
	want := `{"v":1,"type":"group","id":7,"time":"2026-03-01T12:00:00Z","environment":"sums","sequences":2,"tokens":9,` +
		`"longest":5,"scores":[1,0.5],"versions":[2,3],"bytes":55}
{"v":1,"type":"delivered","id":7,"time":"2026-03-01T12:00:00Z","step":4,"version":3}
{"v":1,"type":"trained","id":7,"time":"2026-03-01T12:00:00Z","step":4,"version":3,"offset":55,"bytes":39}
{"v":1,"type":"dropped","id":8,"time":"2026-03-01T12:00:00Z","reason":"stale"}
`
	if string(text) != want {
		t.Errorf("the index is\n%s\nexpected\n%s", text, want)
	}
	r := read(t, dir)
	g := r.Group(7)
	body, computed, err := r.Body(g)
	must(t, err)
	if string(body) != `{"tokens":[[1,2],[1,2]],"scores":[1,0.5]}`+"\n" {
		t.Errorf("the group came back as %s", body)
	}
	if got := Floats(computed.Advantages); !reflect.DeepEqual(got, []float32{1}) || len(computed.Logprobs) != 0 {
		t.Errorf("computed came back as %v", computed)
	}
	if g.Mean != 0.75 || g.Spread != 0.25 || g.Used.Step != 4 || *g.Used.Version != 3 {
		t.Errorf("the group is %+v, used %+v", g, g.Used)
	}
}

func TestWhatIsWrittenComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		want := map[uint64]string{}
		id := uint64(0)
		for range rapid.IntRange(1, 3).Draw(rt, "processes") {
			w := open(t, dir, Limits{Bytes: 1 << 30})
			for range rapid.IntRange(0, 20).Draw(rt, "groups") {
				id++
				text, _ := json.Marshal(rapid.String().Draw(rt, "text"))
				want[id] = string(text) + "\n"
				w.Post(Line{ID: id}, text)
			}
			must(t, w.Close())
		}
		r := read(t, dir)
		list, lost := r.Groups()
		if len(list) != len(want) || lost != 0 {
			rt.Fatalf("%d groups came back and %d are lost, expected %d", len(list), lost, len(want))
		}
		for _, g := range list {
			if body, _, err := r.Body(g); err != nil || string(body) != want[g.ID] {
				rt.Fatalf("group %d came back as %q (%v), expected %q", g.ID, body, err, want[g.ID])
			}
		}
	})
}

func TestATornLineHidesNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, Limits{Bytes: 1 << 30})
	w.Post(Line{ID: 1}, []byte(`{}`))
	must(t, w.Close())
	index := file(dir, 1, indexSuffix)
	text, err := os.ReadFile(index)
	must(t, err)
	must(t, os.WriteFile(index, append(text, text[:len(text)/2]...), 0o600))
	must(t, os.WriteFile(file(dir, 2, bodySuffix), []byte("left by a killed process"), 0o600))
	w = open(t, dir, Limits{Bytes: 1 << 30})
	w.Post(Line{ID: 2}, []byte(`[2]`))
	must(t, w.Close())
	r := read(t, dir)
	if body, _, err := r.Body(r.Group(2)); err != nil || string(body) != "[2]\n" || r.Group(1) == nil {
		t.Errorf("group 2 is %q (%v), group 1 %v", body, err, r.Group(1))
	}
}

func TestAReaderFollowsAWriter(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), (*Reader)(nil)
	w := open(t, dir, Limits{Bytes: 1 << 30})
	r = read(t, dir)
	var writing sync.WaitGroup
	const n = 2000
	writing.Go(func() {
		for id := uint64(1); id <= n; id++ {
			w.Post(Line{ID: id}, fmt.Appendf(nil, `{"scores":[%d]}`, id))
		}
		must(t, w.Close())
	})
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := r.Refresh()
		must(t, err)
		list, _ := r.Groups()
		for _, g := range list[max(0, len(list)-3):] {
			if body, _, err := r.Body(g); err != nil || !strings.HasPrefix(string(body), fmt.Sprintf(`{"scores":[%d]`, g.ID)) {
				t.Fatalf("group %d came back as %q (%v)", g.ID, body, err)
			}
		}
		if len(list) == n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d groups came in a minute", len(list), n)
		}
	}
	writing.Wait()
}

func TestTheOldestFilesAreDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	for segment := 1; segment <= 4; segment++ {
		must(t, os.WriteFile(file(dir, segment, indexSuffix), make([]byte, 1000), 0o600))
		must(t, os.WriteFile(file(dir, segment, bodySuffix), make([]byte, 9000), 0o600))
	}
	old := now.Add(-2 * time.Hour)
	must(t, os.Chtimes(file(dir, 3, indexSuffix), old, old))
	for _, test := range []struct {
		limits Limits
		want   []int
	}{
		{Limits{Bytes: 2*segmentBytes + 25_000}, []int{2, 3, 4}},
		{Limits{Bytes: 2*segmentBytes + 25_000, Age: time.Hour}, []int{2, 4}},
		{Limits{Bytes: 1}, []int{4}},
	} {
		must(t, prune(dir, 4, test.limits, now))
		if got, err := segments(dir, "."); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("with %+v the files %v are left (%v), expected %v", test.limits, got, err, test.want)
		}
	}
}

func TestADiskThatFailsIsReportedOnceAndCounted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "record")
	var failures []error
	w, err := NewWriter(dir, Limits{Bytes: 1 << 30}, func(err error) { failures = append(failures, err) })
	must(t, err)
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600)) // where the folder was
	err = w.write([]entry{{line: Line{Type: Posted, ID: 1}}})
	if err == nil {
		t.Fatal("writing into a file that is no folder succeeds")
	}
	w.countLost([]entry{{line: Line{Type: Posted, ID: 1}}})
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o700))
	w.Post(Line{ID: 2}, []byte(`{}`))
	must(t, w.Close())
	if list, lost := read(t, dir).Groups(); len(list) != 1 || lost != 1 || len(failures) != 0 {
		t.Errorf("%d groups, %d lost, failures %v; expected 1 and 1", len(list), lost, failures)
	}
}

func TestAMissingBodyIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, Limits{Bytes: 1 << 30})
	w.Post(Line{ID: 1}, []byte(`{}`))
	must(t, w.Close())
	r := read(t, dir)
	must(t, os.Truncate(file(dir, 1, bodySuffix), 3))
	if _, _, err := r.Body(r.Group(1)); err == nil || !strings.Contains(err.Error(), "does not hold 16 bytes") {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(file(dir, 1, bodySuffix)))
	if _, _, err := r.Body(r.Group(1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestNothingIsRecordedWithoutAWriter(t *testing.T) {
	t.Parallel()
	var w *Writer
	w.Post(Line{ID: 1}, nil)
	w.Deliver(Line{ID: 1})
	must(t, w.Close())
}

// A group of 8 completions of 1,024 tokens with log-probabilities, as environments post it.
func BenchmarkPost(b *testing.B) {
	var tokens, logprobs []string
	for i := range 1024 {
		tokens, logprobs = append(tokens, fmt.Sprint(i*7919%50_000)), append(logprobs, fmt.Sprintf("-%.16f",
			float64(i*7919%1000)/997))
	}
	row := func(list []string) string {
		return strings.Repeat(",["+strings.Join(list, ",")+"]", 8)[1:]
	}
	body := []byte(`{"tokens":[` + row(tokens) + `],"masks":[` + row(tokens) +
		`],"scores":[1,0,0,1,0,0,0,1],"inference_logprobs":[` + row(logprobs) + `]}`)
	w := open(b, b.TempDir(), Limits{Bytes: 1 << 30})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	list := []entry{{line: Line{V: 1, Type: Posted, ID: 1}}}
	for b.Loop() {
		list[0].body = body
		must(b, w.write(list))
	}
	b.ReportMetric(8*1024*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	must(b, w.Close())
}

// hostile is a run directory whose record of samples somebody else has made.
func hostile(t testing.TB, index string, bodies []byte) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "samples", "b")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(file(dir, 1, indexSuffix), []byte(index), 0o600))
	must(t, os.WriteFile(file(dir, 1, bodySuffix), bodies, 0o600))
	return root
}

// Offsets of an index may be any numbers: 2^63-1 once made a reader panic.
func TestOffsetsOfAnIndexAreChecked(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]string{
		"the largest offset": `"offset":9223372036854775807,"bytes":100`,
		"the largest size":   `"offset":1,"bytes":9223372036854775807`,
		"before the file":    `"offset":-1,"bytes":3`,
		"a negative size":    `"offset":1,"bytes":-3`,
		"behind the end":     `"offset":8,"bytes":3`,
	} {
		root := hostile(t, `{"v":1,"type":"group","id":1,`+place+"}\n", make([]byte, 10))
		r, err := NewReaderIn(root, "samples/b")
		must(t, err)
		t.Cleanup(r.Close)
		if n, err := r.Refresh(); n != 1 || err != nil {
			t.Fatalf("%d lines, %v", n, err)
		}
		if _, _, err := r.Body(r.Group(1)); err == nil {
			t.Errorf("%s: there is a body", name)
		}
	}
}

// A few bytes may not become many: 13 KB once took 10 GB and a minute of who looked at a run.
func TestBodiesThatInflateAreRefused(t *testing.T) {
	t.Parallel()
	enc, err := zstd.NewWriter(nil)
	must(t, err)
	many := enc.EncodeAll(make([]byte, anyRatio+1), nil)
	few := enc.EncodeAll(make([]byte, anyRatio/8), nil)
	must(t, enc.Close())
	// the same without the announced size: blocks that repeat one byte
	silent := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x70}
	for n := range anyRatio>>17 + 1 {
		last := 0
		if n == anyRatio>>17 {
			last = 1
		}
		h := last | 1<<1 | 1<<17<<3
		silent = append(silent, byte(h), byte(h>>8), byte(h>>16), 'x')
	}
	frames := append(append([]byte(nil), few...), few...)
	for _, c := range []struct {
		name  string
		body  []byte
		reads bool
	}{{"many", many, false}, {"silent", silent, false}, {"two frames", frames, false}, {"few", few, true}} {
		root := hostile(t, fmt.Sprintf(`{"v":1,"type":"group","id":1,"offset":0,"bytes":%d}`+"\n", len(c.body)), c.body)
		r, err := NewReaderIn(root, "samples/b")
		must(t, err)
		t.Cleanup(r.Close)
		_, err = r.Refresh()
		must(t, err)
		if body, _, err := r.Body(r.Group(1)); (err == nil) != c.reads {
			t.Errorf("%s: %d bytes become %d, %v", c.name, len(c.body), len(body), err)
		}
	}
}

// What is no file, or lies elsewhere, is neither waited for nor read: a named pipe once held recipe report for ever,
// and
// a link to /dev/zero ended it out of memory.
func TestWhatIsNoFileIsNotRead(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "x"), []byte(`{"v":1,"type":"group","id":9}`+"\n"), 0o600))
	for name, put := range map[string]func(path string) error{
		"a pipe":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a device":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link to the inside": func(path string) error { return os.Symlink(filepath.Join(outside, "x"), path) },
		"a folder":             func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		root := hostile(t, `{"v":1,"type":"group","id":1,"offset":0,"bytes":4}`+"\n", make([]byte, 10))
		dir := filepath.Join(root, "samples", "b")
		must(t, put(file(dir, 2, indexSuffix)))
		must(t, os.Remove(file(dir, 1, bodySuffix)))
		must(t, put(file(dir, 1, bodySuffix)))
		r, err := NewReaderIn(root, "samples/b")
		must(t, err)
		t.Cleanup(r.Close)
		if n, err := r.Refresh(); n != 1 || err == nil {
			t.Errorf("%s: %d lines, %v", name, n, err)
		}
		if _, _, err := r.Body(r.Group(1)); err == nil {
			t.Errorf("%s: there is a body", name)
		}
	}
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "samples"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(root, "samples", "b")))
	must(t, os.Rename(filepath.Join(outside, "x"), file(outside, 1, indexSuffix)))
	r, err := NewReaderIn(root, "samples/b")
	must(t, err)
	t.Cleanup(r.Close)
	if n, err := r.Refresh(); n != 0 || err == nil {
		t.Errorf("a folder elsewhere: %d lines, %v", n, err)
	}
}

// Whatever the files of a record hold, reading them ends without a panic, and a body is one that the file holds.
func FuzzReader(f *testing.F) {
	good := `{"v":1,"type":"group","id":1,"offset":0,"bytes":15,"scores":[1,0]}` + "\n"
	enc, err := zstd.NewWriter(nil)
	must(f, err)
	body := enc.EncodeAll([]byte(`{}`), nil)
	f.Add([]byte(good), body)
	f.Add([]byte(good+`{"v":1,"type":"trained","id":1,"step":2,"offset":0,"bytes":15}`+"\n"), body)
	f.Add([]byte(`{"v":1,"type":"group","id":1,"offset":9223372036854775807,"bytes":9}`+"\n"), body)
	f.Add([]byte(`{"v":1,"type":"lost","groups":-1}`+"\n"), []byte{})
	root := hostile(f, "", nil)
	index, bodies := file(filepath.Join(root, "samples", "b"), 1, indexSuffix), file(filepath.Join(root, "samples", "b"),
		1,
		bodySuffix)
	f.Fuzz(func(t *testing.T, lines, packed []byte) {
		must(t, os.WriteFile(index, lines, 0o600))
		must(t, os.WriteFile(bodies, packed, 0o600))
		r, err := NewReaderIn(root, "samples/b")
		must(t, err)
		defer r.Close()
		if _, err := r.Refresh(); err != nil {
			t.Fatal(err)
		}
		list, _ := r.Groups()
		for _, g := range list {
			if text, _, err := r.Body(g); err == nil && len(text) > maxBody {
				t.Fatalf("a body of %d bytes", len(text))
			}
		}
	})
}
