package lm

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testCheckpoint(t testing.TB) *Checkpoint {
	t.Helper()
	p := testModel(t)
	return &Checkpoint{Params: p, Alphabet: "0123456789+=abcde", Step: 7, Notes: map[string]string{"task": "test"}}
}

func TestCheckpointRoundTrip(t *testing.T) {
	t.Parallel()
	c := testCheckpoint(t)
	c.Adam = NewAdam(DefaultAdam(), len(c.Params.flat))
	c.Adam.Steps, c.Adam.Mean[3], c.Adam.Square[5] = 11, 0.25, 0.5
	path := filepath.Join(t.TempDir(), "model.tiny")
	for range 2 { // the second write replaces the first
		if err := c.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Params.Config != c.Params.Config || !slices.Equal(got.Params.flat, c.Params.flat) {
		t.Error("weights changed on the way")
	}
	if got.Params.Fingerprint() != c.Params.Fingerprint() {
		t.Error("fingerprint changed on the way")
	}
	if got.Alphabet != c.Alphabet || got.Step != 7 || got.Notes["task"] != "test" {
		t.Errorf("header changed on the way: %+v", got)
	}
	if a := got.Adam; a == nil || a.Steps != 11 || a.AdamConfig != c.Adam.AdamConfig ||
		!slices.Equal(a.Mean, c.Adam.Mean) || !slices.Equal(a.Square, c.Adam.Square) {
		t.Error("optimizer state changed on the way")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("temporary files left behind: %v", entries)
	}
}

func TestCheckpointRefusesForeignAndDamagedFiles(t *testing.T) {
	t.Parallel()
	good, err := testCheckpoint(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, b byte) []byte {
		d := slices.Clone(good)
		d[at] ^= b
		return d
	}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":           {nil, "not a checkpoint"},
		"foreign":         {[]byte("PK\x03\x04 some zip archive"), "not a checkpoint"},
		"header cut":      {good[:checkpointPrefix+10], "truncated"},
		"weights cut":     {good[:len(good)-100], "truncated"},
		"checksum cut":    {good[:len(good)-1], "truncated"},
		"newer version":   {change(len(checkpointMagic), 4), "version"},
		"header length":   {change(len(checkpointMagic)+6, 0xff), "truncated"},
		"header altered":  {change(checkpointPrefix, 0xff), "header is damaged"},
		"weight altered":  {change(len(good)-80, 1), "checksum"},
		"checksum itself": {change(len(good)-1, 1), "checksum"},
		"trailing bytes":  {append(slices.Clone(good), 1, 2, 3), "truncated or damaged"},
	} {
		if _, err := Decode(test.data); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: want an error about %q, got %v", name, test.want, err)
		}
	}
	if _, err := Decode([]byte("hello")); !errors.Is(err, ErrNotCheckpoint) {
		t.Errorf("want ErrNotCheckpoint, got %v", err)
	}
}

func TestCheckpointRefusesPartsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Checkpoint){
		"alphabet": func(c *Checkpoint) { c.Alphabet = "abc" },
		"step":     func(c *Checkpoint) { c.Step = -1 },
		"adam":     func(c *Checkpoint) { c.Adam = NewAdam(DefaultAdam(), 3) },
		"nan":      func(c *Checkpoint) { c.Params.flat[1] /= 0 },
	} {
		c := testCheckpoint(t)
		spoil(c)
		path := filepath.Join(t.TempDir(), "x")
		if err := c.Save(path); err == nil {
			t.Errorf("%s: a checkpoint that cannot be read back was saved", name)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a refused checkpoint left a file", name)
		}
	}
}

func TestLoadRefusesFoldersAndMissingFiles(t *testing.T) {
	t.Parallel()
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("folder: got %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}

// FuzzDecode: what Decode accepts, Encode writes and Decode reads again. Every second input gets a correct checksum,
// because random changes would not pass it.
func FuzzDecode(f *testing.F) {
	p, err := NewParams(Config{Vocabulary: 5, Width: 2, Layers: 1, Heads: 1, Hidden: 2, Context: 2}, 1)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range []*Checkpoint{
		{Params: p, Alphabet: "ab", Step: 1},
		{Params: p, Alphabet: "ab", Step: 2, Adam: NewAdam(DefaultAdam(), len(p.flat)),
			Notes: map[string]string{"task": "sum"}},
	} {
		good, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good[:len(good)-sha256.Size], true)
		f.Add(good, false)
		f.Add(good[:40], false)
	}
	f.Add([]byte(checkpointMagic), false)
	f.Fuzz(func(t *testing.T, data []byte, checksum bool) {
		if len(data) > 1<<12 {
			t.Skip("a longer file has nothing else to go wrong")
		}
		if checksum {
			sum := sha256.Sum256(data)
			data = append(slices.Clip(data), sum[:]...)
		}
		c, err := Decode(data)
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatalf("a checkpoint that was read cannot be written: %v", err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("a checkpoint that was written cannot be read: %v", err)
		}
	})
}
