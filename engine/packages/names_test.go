package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Names that are one file on some systems and two on others are refused wherever an archive is read or made.
func TestNamesThatAreOneFileElsewhere(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]string{
		"case":                 {"A", "a"},
		"case of a folder":     {"Lib/a.hcl", "lib/b.hcl"},
		"form of Unicode":      {"\u00e9", "e\u0301"},
		"both":                 {"\u00c9", "e\u0301"},
		"a folded letter":      {"stra\u00dfe", "STRASSE"},
		"a file and a folder":  {"A", "a/b"},
		"a sign of its own":    {"\u212a", "k"}, // KELVIN SIGN
		"the end of the Greek": {"\u03c3", "\u03c2"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var zipped, tarred bytes.Buffer
			z, w := zip.NewWriter(&zipped), tar.NewWriter(&tarred)
			for _, file := range pair {
				h := &zip.FileHeader{Name: file}
				h.SetMode(0o644)
				if _, err := z.CreateHeader(h); err != nil {
					t.Fatal(err)
				}
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644}); err != nil {
					t.Fatal(err)
				}
			}
			if z.Close() != nil || w.Close() != nil {
				t.Fatal("closing an archive failed")
			}
			path := filepath.Join(t.TempDir(), "x.tar")
			if err := os.WriteFile(path, tarred.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			_, inTar := tarFiles(f)
			_, made := archive(map[string]File{pair[0]: {}, pair[1]: {}}, zip.Store)
			inZip := extract(bytes.NewReader(zipped.Bytes()), int64(zipped.Len()), t.TempDir(), moduleLimits)
			r := reader{files: map[string]File{}, limit: moduleLimits}
			for where, err := range map[string]error{"a layout in a tar": inTar, "an archive that is made": made,
				"a zip": inZip, "a module": r.tar(&tarred)} {
				if err == nil || !strings.Contains(err.Error(), "refused") {
					t.Errorf("%s: %v", where, err)
				}
			}
		})
	}
}

// TestNamesCostTheirLength: a folder within a folder within another … costs once, wherever an archive is read.
func TestNamesCostTheirLength(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("\u00c9/", 20_000) + "x"
	var tarred bytes.Buffer
	w := tar.NewWriter(&tarred)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: deep, Mode: 0o644}); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(path, tarred.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	start := time.Now()
	_, inTar := tarFiles(f)
	zipped := hostile(t, entry(deep, 0o644))
	inZip := extract(bytes.NewReader(zipped), int64(len(zipped)), t.TempDir(), moduleLimits)
	for where, err := range map[string]error{"a layout in a tar": inTar, "a zip": inZip} {
		if err == nil || !strings.Contains(err.Error(), "expected at most 1024") {
			t.Errorf("%s: %v", where, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second { // it took 40
		t.Errorf("a name of %d bytes took %s", len(deep), took)
	}
	n := fileNames{}
	for i := range 100 { // names of the longest kind share what their folders have in common
		err := n.add(strings.Repeat("a/", 500) + string(rune('A'+i)))
		if err != nil && !strings.Contains(err.Error(), "also") {
			t.Fatal(err)
		}
	}
	if len(n.known) > 600 {
		t.Errorf("%d folders are kept of names with 500 folders in common", len(n.known))
	}
}

// TestTheDirectoryOfAZipIsBounded: an entry has 50 bytes there and takes hundreds in memory.
func TestTheDirectoryOfAZipIsBounded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for range 20_000 {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: "d/"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	read := &bytesRead{from: bytes.NewReader(b.Bytes())}
	_, err := openZip(read, int64(b.Len()), limits{bytes: 1, files: 10})
	if err == nil || !strings.Contains(err.Error(), "at most 10 files are allowed") {
		t.Errorf("a directory of %d entries: %v", 20_000, err)
	}
	if read.n > 400<<10 {
		t.Errorf("%d bytes were read before it was refused", read.n)
	}
	many := limits{bytes: 1, files: 20_000}
	if z, err := openZip(bytes.NewReader(b.Bytes()), int64(b.Len()), many); err != nil || len(z.File) != 20_000 {
		t.Errorf("as many files as are allowed: %v", err)
	}
}

// bytesRead counts what is read.
type bytesRead struct {
	from io.ReaderAt
	n    int
}

func (r *bytesRead) ReadAt(p []byte, at int64) (int, error) {
	r.n += len(p)
	return r.from.ReadAt(p, at)
}
