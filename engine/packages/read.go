package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// reader collects the files of an archive that somebody else made, within limits.
type reader struct {
	names fileNames
	files map[string]File
	limit limits
}

// readArchive reads the files of a .tar, .tar.gz or .zip. It refuses what extract refuses.
func readArchive(f *os.File, limit limits) (map[string]File, error) {
	r := reader{files: map[string]File{}, limit: limit}
	begin := make([]byte, 4)
	if _, err := f.ReadAt(begin, 0); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	most := limit.bytes + int64(limit.files)*perEntry
	if info.Size() > most {
		return nil, fmt.Errorf("the archive has %d bytes, at most %d are read", info.Size(), most)
	}
	switch {
	case bytes.HasPrefix(begin, []byte("PK")):
		err = r.zip(f, info.Size())
	default:
		var plain io.Reader
		if plain, err = decompressed(f); err == nil {
			// Folders and headers cost a reader, too, and a million of them shrink to a few bytes.
			left := &io.LimitedReader{R: plain, N: most}
			if err = r.tar(left); err != nil && left.N <= 0 {
				err = fmt.Errorf("the archive inflates to more than %d bytes", most)
			}
		}
	}
	return r.files, err
}

// perEntry is how many bytes of an archive may be those of one file beside its content.
const perEntry = 4 << 10

// decompressed is the content of a file that may be compressed by gzip.
func decompressed(f *os.File) (io.Reader, error) {
	begin := make([]byte, 2)
	if _, err := f.ReadAt(begin, 0); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	if !bytes.Equal(begin, []byte{0x1f, 0x8b}) {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return z, nil
}

func (r *reader) zip(f *os.File, size int64) error {
	z, err := openZip(f, size, r.limit)
	if err != nil {
		return err
	}
	for _, entry := range z.File {
		content, err := entry.Open()
		if err != nil {
			return fmt.Errorf("read %s: %w", entry.Name, err)
		}
		if err := errors.Join(r.add(entry.Name, entry.Mode(), content), content.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) tar(content io.Reader) error {
	for t := tar.NewReader(content); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the archive: expected a .tar, .tar.gz or .zip: %w", err)
		case h.Typeflag == tar.TypeXGlobalHeader: // of git archive
			continue
		}
		mode := h.FileInfo().Mode()
		if h.Typeflag == tar.TypeLink {
			mode |= fs.ModeIrregular
		}
		if err := r.add(h.Name, mode, t); err != nil {
			return err
		}
	}
}

// add reads one entry. Folders are made for the files in them.
func (r *reader) add(name string, mode fs.FileMode, content io.Reader) error {
	name = strings.TrimPrefix(name, "./")
	if mode.IsDir() {
		return nil
	}
	if err := checkName(name); err != nil {
		return err
	}
	if err := r.names.add(name); err != nil {
		return err
	}
	switch _, twice := r.files[name]; {
	case !mode.IsRegular():
		return fmt.Errorf("%s is refused: it is no regular file (%s)", name, mode)
	case twice:
		return fmt.Errorf("%s is refused: the archive has it twice", name)
	case len(r.files) >= r.limit.files:
		return fmt.Errorf("the archive has more than %d files", r.limit.files)
	}
	data, err := readAll(content, r.limit.bytes)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	r.limit.bytes -= int64(len(data))
	r.files[name] = File{Content: data, Executable: mode&0o100 != 0}
	return nil
}

// withoutTop removes the folder that all files are in, as the archives of code hosts have one: eval-1.2.0/eval.hcl
// becomes eval.hcl.
func withoutTop(files map[string]File) map[string]File {
	out := map[string]File{}
	top := ""
	for name, f := range files {
		folder, rest, ok := strings.Cut(name, "/")
		if !ok || top != "" && folder != top {
			return files
		}
		top, out[rest] = folder, f
	}
	return out
}
