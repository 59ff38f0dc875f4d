package bounded

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWhatIsReadHasALimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		from  io.Reader
		bytes int
		fails bool
	}{
		{name: "less", from: strings.NewReader("1234"), bytes: 4},
		{name: "as much", from: strings.NewReader("12345"), bytes: 5},
		{name: "as much, byte by byte", from: iotest.OneByteReader(strings.NewReader("12345")), bytes: 5},
		{name: "more", from: strings.NewReader("123456"), bytes: 5, fails: true},
		{name: "more, byte by byte", from: iotest.OneByteReader(strings.NewReader("123456")), bytes: 5, fails: true},
		{name: "without end", from: endless{}, bytes: 5, fails: true},
	} {
		got, err := ReadAll(c.from, 5)
		if len(got) != c.bytes || errors.Is(err, ErrTooLarge) != c.fails || err != nil && !c.fails {
			t.Errorf("%s: %d bytes and %v, expected %d bytes", c.name, len(got), err, c.bytes)
		}
	}
}

func TestLinesHaveALimit(t *testing.T) {
	t.Parallel()
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", 99)+"\nb\nlast"), 16)
	for _, want := range []string{strings.Repeat("a", 99) + "\n", "b\n"} {
		if got, err := Line(r, 100); err != nil || string(got) != want {
			t.Errorf("read %q, %v; expected %q", got, err, want)
		}
	}
	if got, err := Line(r, 100); !errors.Is(err, io.EOF) || string(got) != "last" {
		t.Errorf("read %q, %v; expected the last line and the end", got, err)
	}
	if got, err := Line(bufio.NewReaderSize(endless{}, 16), 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("read %d bytes, %v; expected a refusal", len(got), err)
	}
}
