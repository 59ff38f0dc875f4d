package function

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/internal/regular"
)

// What is read for the digests of files that blocks read.
const (
	wholeFile  = 64 << 20  // a larger file is sampled
	wholeTotal = 256 << 20 // of one load; what comes after it is sampled
	sampleSize = 64 << 10
	samples    = 16
	maxEntries = 10_000 // of a folder
)

// Content identifies the content of a file or folder that a block reads, and records it, so that a plan depends on it.
// Files of at most 64 MiB are read as a whole, as long as those of the recipe have 256 MiB together; of a larger one
// size, time of change and 16 samples of 64 KiB count. Hidden names in folders, and Python's caches, do not count. An
// error that is fs.ErrNotExist means that there is neither a file nor a folder.
func (f *Files) Content(path string) (string, error) {
	full := f.resolve(path)
	if err := ordinary(path, full); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.contents[full]; ok {
		return known, nil
	}
	info, err := os.Stat(full)
	if err != nil {
		return "", err
	}
	digest := ""
	if info.IsDir() {
		digest, err = f.folder(full)
	} else {
		digest, err = f.file(full)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if f.contents == nil {
		f.contents = map[string]string{}
	}
	if f.read == nil {
		f.read = map[string]string{}
	}
	f.contents[full], f.read[full] = digest, digest
	return digest, nil
}

// Head returns the first bytes of a file.
func (f *Files) Head(path string, limit int64) ([]byte, error) {
	in, _, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return io.ReadAll(io.LimitReader(in, limit))
}

// Open opens an ordinary file, and returns its size.
func (f *Files) Open(path string) (*os.File, int64, error) {
	full := f.resolve(path)
	if err := ordinary(path, full); err != nil {
		return nil, 0, err
	}
	in, info, err := regular.Follow(full)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	return in, info.Size(), nil
}

// folder is the digest of the names and contents of the files below a folder.
func (f *Files) folder(path string) (string, error) {
	h, entries := sha256.New(), 0
	err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case at == path:
			return nil
		case d.IsDir() && (name[0] == '.' || name == "__pycache__"):
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || name[0] == '.':
			return nil
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("it has more than %d files", maxEntries)
		}
		digest, err := f.file(at)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(path, at) // at is below path
		_, err = fmt.Fprintf(h, "%q %s\n", filepath.ToSlash(rel), digest)
		return err
	})
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), err
}

func (f *Files) file(path string) (string, error) {
	in, info, err := regular.Follow(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	h := sha256.New()
	if size := info.Size(); size <= wholeFile && f.whole+size <= wholeTotal {
		f.whole += size
		_, err = io.Copy(h, io.LimitReader(in, wholeFile))
		return "sha256:" + hex.EncodeToString(h.Sum(nil)), err
	}
	for _, n := range []int64{info.Size(), info.ModTime().UnixNano()} {
		_ = binary.Write(h, binary.LittleEndian, n) // a hash never fails
	}
	step := max(info.Size()/samples, sampleSize)
	for at := int64(0); at < info.Size(); at += step {
		if _, err := io.Copy(h, io.NewSectionReader(in, at, sampleSize)); err != nil {
			return "", err
		}
	}
	return "sampled:" + hex.EncodeToString(h.Sum(nil)), nil
}
