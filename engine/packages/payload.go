package packages

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"
)

// File is one file of a package.
type File struct {
	Content    []byte
	Executable bool
}

// archive returns the zip of files. The same files give the same bytes: names are sorted, and there are no times,
// owners or modes other than 0644 and 0755.
func archive(files map[string]File, method uint16) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	// A pinned module compresses: a new Go release must not change the digest of a package.
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.DefaultCompression)
	})
	var names fileNames
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := errors.Join(checkName(name), names.add(name)); err != nil {
			return nil, err
		}
		h := &zip.FileHeader{Name: name, Method: method}
		h.SetMode(0o644)
		if files[name].Executable {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(files[name].Content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack the files: %w", err)
	}
	return b.Bytes(), nil
}

// checkName accepts the name of a file inside a package: relative, in its shortest form, below the folder, and the
// same
// file on every system.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || len(name) > maxName || !utf8.ValidString(name),
		strings.ContainsAny(name, "\\:\x00"), strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }),
		path.IsAbs(name), path.Clean(name) != name, name == "..", strings.HasPrefix(name, "../"):
		return fmt.Errorf("the file name %q is refused: expected a relative path below the package's folder", name)
	}
	return nil
}

// limits of an extraction; the zero value allows nothing.
type limits struct {
	bytes int64
	files int
}

var (
	pluginLimits = limits{bytes: maxExtracted, files: maxFiles}
	moduleLimits = limits{bytes: maxModule, files: maxFiles}
)

// extract writes the files of an archive below dir, which must be an empty folder of this user. It refuses names that
// lead elsewhere, names that occur twice, links, devices, and more than the limits, whatever the archive says of the
// sizes. Files are read-only afterwards; only the executable bit of the owner is kept.
func extract(r io.ReaderAt, size int64, dir string, limit limits) error {
	z, err := openZip(r, size, limit)
	if err != nil {
		return err
	}
	if len(z.File) > limit.files {
		return fmt.Errorf("the archive has %d entries, at most %d are allowed", len(z.File), limit.files)
	}
	root, err := os.OpenRoot(dir) // no path below it leads out, also not through a link that another process makes
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left := limit.bytes
	var names fileNames
	for _, f := range z.File {
		if err := names.add(strings.TrimSuffix(f.Name, "/")); err != nil {
			return err
		}
		n, err := extractFile(root, f, left)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// extractFile writes one file of at most limit bytes and returns how many it has.
func extractFile(root *os.Root, f *zip.File, limit int64) (n int64, err error) {
	if strings.HasSuffix(f.Name, "/") && f.Mode().IsDir() {
		return 0, nil // folders are made for the files in them
	}
	if err := checkName(f.Name); err != nil {
		return 0, err
	}
	if !f.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is refused: it is no regular file (%s)", f.Name, f.Mode())
	}
	if folder := path.Dir(f.Name); folder != "." {
		if err := root.MkdirAll(folder, 0o755); err != nil {
			return 0, fmt.Errorf("%s is refused: %w", f.Name, err)
		}
	}
	r, err := f.Open()
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name, err)
	}
	defer func() { _ = r.Close() }()
	w, err := root.OpenFile(f.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, modeOf(f))
	if errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("%s is refused: the archive has it twice", f.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if n, err = io.Copy(w, io.LimitReader(r, limit+1)); err != nil {
		return n, fmt.Errorf("unpack %s: %w", f.Name, err)
	}
	if n > limit {
		return n, fmt.Errorf("%s is refused: the files of the archive are larger than allowed", f.Name)
	}
	return n, w.Sync()
}

func modeOf(f *zip.File) fs.FileMode {
	if f.Mode()&0o100 != 0 {
		return 0o555
	}
	return 0o444
}

// compare says how the files below dir differ from those of an archive: nil when they are the same, bit by bit, with
// no
// other file among them.
func compare(r io.ReaderAt, size int64, dir string) error {
	z, err := openZip(r, size, pluginLimits)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	known := map[string]bool{}
	for _, f := range z.File {
		if !f.Mode().IsRegular() {
			continue
		}
		known[f.Name] = true
		if err := compareFile(root, f); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err == nil && !known[filepath.ToSlash(rel)] {
			err = fmt.Errorf("%s is not of the package", rel)
		}
		return err
	})
}

func compareFile(root *os.Root, f *zip.File) error {
	info, err := root.Lstat(f.Name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o100 != modeOf(f)&0o100 {
		return fmt.Errorf("%s has another mode (%s)", f.Name, info.Mode())
	}
	have, err := root.Open(f.Name)
	if err != nil {
		return err
	}
	defer func() { _ = have.Close() }()
	want, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = want.Close() }()
	if same, err := sameContent(have, want); err != nil || !same {
		return errors.Join(err, fmt.Errorf("%s was changed", f.Name))
	}
	return nil
}

func sameContent(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		endA := errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF)
		endB := errors.Is(errB, io.EOF) || errors.Is(errB, io.ErrUnexpectedEOF)
		switch {
		case endA && endB:
			return true, nil
		case errA != nil && !endA:
			return false, errA
		case errB != nil && !endB:
			return false, errB
		}
	}
}

// readAll reads a document of at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}
