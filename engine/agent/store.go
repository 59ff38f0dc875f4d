package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// storeLimit is how many bytes of files are kept for later jobs. Jobs have copies, so any file may be removed at any
// time.
const storeLimit = 50 << 30

// store keeps files by the SHA-256 digest of their content, for several jobs of this machine, at once or one after the
// other. What comes in gets its name only when its digest is right.
type store struct{ dir string }

var digestText = lazyregexp.New(`^[0-9a-f]{64}$`)

func (s store) path(digest string) (string, error) {
	if !digestText.MatchString(digest) {
		return "", fmt.Errorf("%q is no SHA-256 digest", digest)
	}
	return filepath.Join(s.dir, digest), nil
}

func (s store) has(digest string, size int64) bool {
	path, err := s.path(digest)
	if err != nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// incoming is a file that is being received. Its folder belongs to one job, so that no other writes to it.
type incoming struct {
	file   *os.File
	hash   hash.Hash
	at     int64
	digest string
	size   int64
}

// receive opens a file to be received, or the part of it that has come before.
func receive(dir, digest string, size int64) (in *incoming, err error) {
	if !digestText.MatchString(digest) || size < 0 {
		return nil, fmt.Errorf("%q is no SHA-256 digest, or %d no size", digest, size)
	}
	in = &incoming{hash: sha256.New(), digest: digest, size: size}
	if in.file, err = private.OpenFile(filepath.Join(dir, digest+".part"), os.O_CREATE|os.O_RDWR); err != nil {
		return nil, err
	}
	if in.at, err = io.Copy(in.hash, in.file); err == nil && in.at > size {
		err = in.restart()
	}
	if err != nil {
		return nil, errors.Join(err, in.file.Close())
	}
	return in, nil
}

func (in *incoming) restart() error {
	in.hash.Reset()
	in.at = 0
	_, err := in.file.Seek(0, io.SeekStart)
	return errors.Join(err, in.file.Truncate(0))
}

// take receives the rest and puts the file into the store. What has come stays for the next attempt, unless its digest
// is wrong.
func (s store) take(in *incoming, from io.Reader) error {
	name := in.file.Name()
	n, err := io.Copy(io.MultiWriter(in.file, in.hash), io.LimitReader(from, in.size-in.at))
	if in.at += n; err == nil && in.at < in.size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, in.file.Close()); err != nil {
		return fmt.Errorf("receive %s: %w", in.digest, err)
	}
	if got := hex.EncodeToString(in.hash.Sum(nil)); got != in.digest {
		return errors.Join(fmt.Errorf("a file with digest %s was received, expected %s", got, in.digest), os.Remove(name))
	}
	path, err := s.path(in.digest)
	if err == nil {
		err = os.Rename(name, path) // of equal content, if another job was quicker
	}
	return err
}

// copyTo copies a file of the store to a path in a job's folder.
func (s store) copyTo(root *os.Root, f File) error {
	path, err := s.path(f.Digest)
	if err != nil {
		return err
	}
	from, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	now := time.Now()
	_ = os.Chtimes(path, now, now) // the file that was used longest ago is removed first
	if err := root.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if f.Executable {
		mode = 0o700
	}
	part := f.Path + "." + rand.Text()
	to, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, sum), from)
	err = errors.Join(err, to.Close(), root.Chtimes(part, f.Modified, f.Modified))
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != f.Digest {
		err = errors.Join(fmt.Errorf("%s is damaged: its content has another digest; it was removed", path), os.Remove(path))
	}
	if err == nil {
		err = root.Rename(part, f.Path)
	}
	if err != nil {
		_ = root.Remove(part)
		return fmt.Errorf("copy %s to the job's folder: %w", f.Path, err)
	}
	return nil
}

// trim removes the files that were used longest ago until the store is within its limit.
func (s store) trim(limit int64) error {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("trim the store of staged files: %w", err)
	}
	var files []fs.FileInfo
	var total int64
	for _, e := range list {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && digestText.MatchString(e.Name()) {
			files = append(files, info)
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= limit {
			break
		}
		if err := os.Remove(filepath.Join(s.dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("trim the store of staged files: %w", err)
		}
		total -= f.Size()
	}
	return nil
}
