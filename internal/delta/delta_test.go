package delta

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkpoint writes a folder as trainers do: tensors of two widths in safetensors, and a small file beside them.
func checkpoint(t testing.TB, dtype string, values map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "weights")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	header, at, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, 0, []byte{}
	for _, name := range []string{"embed", "layer.0", "layer.1"} {
		header[name] = map[string]any{"dtype": dtype, "shape": []int{len(values[name])},
			"data_offsets": []int{at, at + len(values[name])}}
		at, data = at+len(values[name]), append(data, values[name]...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("model.safetensors", append(append(file, text...), data...))
	write("config.json", []byte(`{"hidden_size": 4}`))
	write("sub/empty", nil)
	return dir
}

func noise(seed uint64, n int) []byte {
	r, out := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func read(t testing.TB, path string) *Folder {
	t.Helper()
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// equal compares the files of two folders byte by byte.
func equal(t testing.TB, a, b string) {
	t.Helper()
	for _, name := range []string{"model.safetensors", "config.json", "sub/empty"} {
		x, err := os.ReadFile(filepath.Join(a, name))
		y, other := os.ReadFile(filepath.Join(b, name))
		if err := errors.Join(err, other); err != nil || !bytes.Equal(x, y) {
			t.Errorf("%s differs (%v)", name, err)
		}
	}
}

// changedAt returns a copy with bits changed in one of so many elements.
func changedAt(data []byte, width, every int) []byte {
	out := bytes.Clone(data)
	for i := 0; i+width <= len(out); i += width * every {
		out[i] ^= 1
	}
	return out
}

//docs:weights.md Tests
func TestWhatArrivesIsTheSameToTheLastBit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dtype        string
		width, every int // one of so many elements changes
		form         string
		most         float64 // share of the bytes
	}{
		"few elements of bfloat16": {"BF16", 2, 100, changes, 0.02},
		"all elements of float32":  {"F32", 4, 1, planes, 0.3},
		"few elements of float32":  {"F32", 4, 100, changes, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := map[string][]byte{"embed": noise(1, 1<<18), "layer.0": noise(2, 4096), "layer.1": noise(3, 8)}
			next := map[string][]byte{"embed": changedAt(values["embed"], c.width, c.every), "layer.0": values["layer.0"],
				"layer.1": values["layer.1"]}
			base, after := read(t, checkpoint(t, c.dtype, values)), read(t, checkpoint(t, c.dtype, next))
			var stream bytes.Buffer
			stats, err := Write(&stream, after, base)
			if err != nil {
				t.Fatal(err)
			}
			if share := float64(stats.Packed) / float64(stats.Bytes); share > c.most || stats.Packed != int64(stream.Len()) {
				t.Errorf("%d of %d bytes are sent, expected %g of them at most", stats.Packed, stats.Bytes, c.most)
			}
			if !strings.Contains(stream.String(), `"form":"`+c.form+`"`) {
				t.Errorf("no part has the form %s", c.form)
			}
			out := filepath.Join(t.TempDir(), "out")
			got, err := Apply(&stream, base, out)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, out, after.Path)
			if again := read(t, out); got.Digest != after.Digest || again.Digest != after.Digest {
				t.Errorf("the digests are %s and, read again, %s; expected %s", got.Digest, again.Digest, after.Digest)
			}
		})
	}
}

//docs:weights.md Tests
func TestEveryFolderSurvivesThePassage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		bytesOf := func(label string) []byte { return rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(r, label) }
		values := func(label string) map[string][]byte {
			return map[string][]byte{"embed": bytesOf(label), "layer.0": bytesOf(label), "layer.1": bytesOf(label)}
		}
		dtype := rapid.SampledFrom([]string{"F32", "BF16", "F64", "I8", "unknown"}).Draw(r, "dtype")
		after := read(t, checkpoint(t, dtype, values("after")))
		var base *Folder
		if rapid.Bool().Draw(r, "based") {
			base = read(t, checkpoint(t, dtype, values("before")))
		}
		var stream bytes.Buffer
		if _, err := Write(&stream, after, base); err != nil {
			r.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Apply(&stream, base, out); err != nil {
			r.Fatal(err)
		}
		equal(t, out, after.Path)
	})
}

//docs:weights.md Tests
func TestDamageIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	values := map[string][]byte{"embed": noise(1, 4096), "layer.0": noise(2, 512), "layer.1": noise(3, 8)}
	next := map[string][]byte{"embed": changedAt(values["embed"], 2, 50), "layer.0": values["layer.0"],
		"layer.1": noise(4, 8)}
	base, after := read(t, checkpoint(t, "BF16", values)), read(t, checkpoint(t, "BF16", next))
	other := read(t, checkpoint(t, "BF16", next))
	var whole bytes.Buffer
	if _, err := Write(&whole, after, base); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := Apply(bytes.NewReader(whole.Bytes()), other, out); !errors.Is(err, ErrBase) {
		t.Errorf("a difference from another folder: %v", err)
	}
	if _, err := Apply(bytes.NewReader(whole.Bytes()), nil, out); !errors.Is(err, ErrBase) {
		t.Errorf("a difference without its folder: %v", err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		damaged := bytes.Clone(whole.Bytes())
		at := r.IntN(len(damaged))
		damaged[at] ^= byte(1 + r.IntN(255))
		if r.IntN(4) == 0 {
			damaged = damaged[:at]
		}
		if _, err := Apply(bytes.NewReader(damaged), base, out); err == nil {
			equal(t, out, after.Path) // a byte that says nothing, such as the name of a field
			_ = os.RemoveAll(out)
		}
		if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
			t.Fatalf("byte %d: %v is left behind", at, left)
		}
	}
}

func FuzzApply(f *testing.F) {
	values := map[string][]byte{"embed": noise(1, 64), "layer.0": noise(2, 32), "layer.1": noise(3, 8)}
	base := read(f, checkpoint(f, "BF16", values))
	values["embed"] = changedAt(values["embed"], 2, 20)
	var stream bytes.Buffer
	if _, err := Write(&stream, read(f, checkpoint(f, "BF16", values)), base); err != nil {
		f.Fatal(err)
	}
	f.Add(stream.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		out := filepath.Join(t.TempDir(), "out")
		got, err := Apply(bytes.NewReader(data), base, out)
		if err == nil && read(t, out).Digest != got.Digest {
			t.Error("the folder that came out is not what its digest says")
		}
	})
}
