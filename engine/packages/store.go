package packages

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk"
)

// Store keeps the blobs of packages, and the trees of their files, by digest. It is shared by the runs of this user.
// Whatever is in it is checked against a digest of the lock before it is used, so losing or damaging it costs a fetch
// and nothing else.
type Store struct {
	Policies []SourcePolicy // whose signatures packages must have, besides what recipes say

	dir string

	mu       sync.Mutex
	archived map[string]string // what archives have, see inArchive
}

// NewStore uses a folder, which is made when something is first stored.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Contains reports whether a path lies in the tree of a package.
func (s *Store) Contains(path string) bool {
	rel, err := filepath.Rel(filepath.Join(s.dir, "trees"), path)
	return err == nil && filepath.IsLocal(rel)
}

// Vouched says whether the settings demand signatures of packages of a source, so that one in use has been signed by
// whom they name. What the recipe itself demands does not count.
func (s *Store) Vouched(source string) bool {
	if IsArchive(source) { // which has no signature
		return false
	}
	for _, p := range s.Policies {
		if below(place(address(source)), place(p.Prefix)) {
			return true
		}
	}
	return false
}

func (s *Store) blobFile(digest v1.Hash) string {
	return filepath.Join(s.dir, filepath.FromSlash(blobPath(digest)))
}

// document reads a blob of at most limit bytes, and checks it. The error is fs.ErrNotExist when it is not stored.
func (s *Store) document(digest v1.Hash, limit int64) ([]byte, error) {
	f, err := os.Open(s.blobFile(digest))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := readAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("read the stored blob %s: %w", digest, err)
	}
	return data, checkDigest(data, digest)
}

// put stores what r gives under its digest, in one step: a blob is complete, or not there. Two that store the same blob
// do not disturb each other. A size below 0 is not known.
func (s *Store) put(digest v1.Hash, size int64, r io.Reader) error {
	file := s.blobFile(digest)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make the store of packages: %w", err)
	}
	return putFile(file, digest, size, 0o600, r)
}

// putFile writes what r gives to a file, if it has this digest and size, in one step.
func putFile(file string, digest v1.Hash, size int64, mode os.FileMode, r io.Reader) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // nothing is left under that name after the rename
	sum := sha256.New()
	limit := size
	if size < 0 {
		limit = maxArchive
	}
	n, err := io.Copy(io.MultiWriter(temp, sum), io.LimitReader(r, limit+1))
	switch {
	case err == nil && size < 0 && n > limit:
		err = fmt.Errorf("it has more than %d bytes", limit)
	case err == nil && size >= 0 && n != size:
		err = fmt.Errorf("expected %d bytes, got %d%s", size, n, orMore(n > size))
	}
	if have := digestSum(sum); err == nil && have != digest {
		err = &DigestError{Want: digest.String(), Have: have.String()}
	}
	if err == nil {
		err = errors.Join(temp.Chmod(mode), temp.Sync())
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}
	return private.SyncDir(filepath.Dir(file))
}

func orMore(more bool) string {
	if more {
		return " or more"
	}
	return ""
}

// fetch makes sure that a blob is stored and whole. fetched: it was not.
func (s *Store) fetch(ctx context.Context, from repository, d v1.Descriptor) (fetched bool, err error) {
	if s.whole(d) {
		return false, nil
	}
	r, err := from.blob(ctx, d.Digest)
	if err != nil {
		return false, err
	}
	err = s.put(d.Digest, d.Size, r)
	return true, errors.Join(err, r.Close())
}

// whole reports that a blob is stored with the content that its digest promises.
func (s *Store) whole(d v1.Descriptor) bool { return wholeFile(s.blobFile(d.Digest), d.Digest) }

func wholeFile(path string, digest v1.Hash) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return hashes(f, digest) == nil
}

func hashes(f *os.File, want v1.Hash) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if have := digestSum(sum); have != want {
		return &DigestError{Want: want.String(), Have: have.String()}
	}
	return nil
}

func (s *Store) tree(files v1.Hash) string { return filepath.Join(s.dir, "trees", files.Hex) }

// treeOf is the folder of the archive with a digest as a lock has it.
func (s *Store) treeOf(files string) (string, error) {
	h, err := v1.NewHash(files)
	return s.tree(h), err
}

// checkedTree returns the folder with the files of an archive, after it has compared each with the archive, and the
// archive with its digest.
func (s *Store) checkedTree(files v1.Hash) (string, error) {
	f, err := os.Open(s.blobFile(files))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if err := hashes(f, files); err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return s.tree(files), compare(f, info.Size(), s.tree(files))
}

// unpack makes the tree of an archive that is stored, unless it is there as it should be. Concurrent callers make it
// once; a part that a killed one left is removed.
func (s *Store) unpack(ctx context.Context, files v1.Hash, limit limits) (err error) {
	if _, err := s.checkedTree(files); err == nil {
		return nil
	}
	trees := filepath.Dir(s.tree(files))
	if err := os.MkdirAll(trees, 0o700); err != nil {
		return fmt.Errorf("make the store of packages: %w", err)
	}
	unlock, err := private.Lock(ctx, s.tree(files)+".lock", "another recipe that unpacks the same package")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.checkedTree(files); err == nil {
		return nil
	}
	leftovers, err := filepath.Glob(s.tree(files) + ".new-*")
	if err != nil {
		return err
	}
	for _, dir := range append(leftovers, s.tree(files)) {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an incomplete or changed package: %w", err)
		}
	}
	f, err := os.Open(s.blobFile(files))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := hashes(f, files); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(trees, files.Hex+".new-")
	if err != nil {
		return err
	}
	if err := extract(f, info.Size(), temp, limit); err != nil {
		return errors.Join(fmt.Errorf("unpack: %w", err), os.RemoveAll(temp))
	}
	if err := os.Rename(temp, s.tree(files)); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return private.SyncDir(trees)
}

// damaged is the error for a store that does not have what the lock says of a plugin or a module.
func damaged(what string, err error) error {
	e := &sdk.Error{Summary: "the package of " + what + " is not as the lock says", Err: err,
		Remedy: "run recipe init, which fetches it again"}
	if errors.Is(err, fs.ErrNotExist) {
		e.Summary = "the package of " + what + " has not been fetched on this machine"
		e.Remedy = "run recipe init, which fetches what the lock says"
	}
	return e
}
