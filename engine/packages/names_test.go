package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
