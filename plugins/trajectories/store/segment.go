package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Bodies lie back to back in append-only files. The index says where each one is, so nothing in these files has to be
// parsed, and what a crash left at the end of one is simply never referred to. A file is deleted when the last group
// in it has ended.

// magic starts every body file: a file without it is not ours and is left alone.
const magic = "recipe trajectories 1\n"

// segmentSize is where a new file is begun: small enough that ended groups free space soon.
const segmentSize = 64 << 20

// place is where a body lies.
type place struct {
	Segment uint32
	Offset  int64
	Length  int64
	Sum     uint32 // CRC-32C
}

// segment is one body file.
type segment struct {
	number uint32
	file   *os.File
	size   int64
	live   int // groups that the index refers to
}

// bodies is the set of body files. Writing is for one goroutine, reading for any.
type bodies struct {
	dir   string
	table *crc32.Table

	mu       sync.RWMutex
	segments map[uint32]*segment
	current  *segment
	next     uint32
	idle     bool // some file may have lost its last reference
}

// ErrCorrupt says that a body is not what was written: the file was changed or the disk has lost it.
var ErrCorrupt = errors.New("a stored group is damaged")

func openBodies(dir string) (*bodies, error) {
	b := &bodies{dir: dir, table: crc32.MakeTable(crc32.Castagnoli), segments: map[uint32]*segment{}, next: 1}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the trajectory bodies: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the trajectory bodies: %w", err)
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".bodies"), 10, 32)
		if err != nil || !strings.HasSuffix(e.Name(), ".bodies") {
			continue
		}
		b.next = max(b.next, uint32(number)+1)
		s, err := openSegment(filepath.Join(dir, e.Name()), uint32(number))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		if s != nil {
			b.segments[s.number] = s
		}
	}
	return b, nil
}

// openSegment opens a file for reading; nil when it is not ours.
func openSegment(name string, number uint32) (*segment, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // the folder is the store's own
	if err != nil {
		return nil, fmt.Errorf("opening trajectory bodies: %w", err)
	}
	head := make([]byte, len(magic))
	if n, err := f.ReadAt(head, 0); n < len(magic) && err != nil || string(head) != magic {
		_ = f.Close()
		return nil, nil
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("opening trajectory bodies: %w", err)
	}
	return &segment{number: number, file: f, size: info.Size()}, nil
}

func (b *bodies) name(number uint32) string {
	return filepath.Join(b.dir, fmt.Sprintf("%08d.bodies", number))
}

// writable returns the file to append to, beginning a new one when the current one is full. A file from before a
// restart is never appended to, so what follows its last referenced byte does not matter.
func (b *bodies) writable() (*segment, error) {
	if b.current != nil && b.current.size < segmentSize {
		return b.current, nil
	}
	name := b.name(b.next)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the folder is the store's own
	if err != nil {
		return nil, fmt.Errorf("beginning a file of trajectory bodies: %w", err)
	}
	if _, err := f.WriteAt([]byte(magic), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning a file of trajectory bodies: %w", err), f.Close(), os.Remove(name))
	}
	if err := syncDir(b.dir); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	s := &segment{number: b.next, file: f, size: int64(len(magic))}
	b.mu.Lock()
	b.next++
	b.segments[s.number] = s
	b.current = s
	b.idle = true // the one before may be without references already
	b.mu.Unlock()
	return s, nil
}

// append writes a body at the end of the current file, without forcing it to the disk.
func (b *bodies) append(body []byte) (place, error) {
	s, err := b.writable()
	if err != nil {
		return place{}, err
	}
	if _, err := s.file.WriteAt(body, s.size); err != nil {
		// What was written of it lies behind the end and will be overwritten.
		return place{}, fmt.Errorf("writing a trajectory body: %w", err)
	}
	p := place{Segment: s.number, Offset: s.size, Length: int64(len(body)), Sum: crc32.Checksum(body, b.table)}
	s.size += int64(len(body))
	return p, nil
}

// read appends a body to dst and checks that it is what was written.
func (b *bodies) read(p place, dst []byte) ([]byte, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.segments[p.Segment]
	if s == nil {
		return dst, fmt.Errorf("%w: its file %s is missing", ErrCorrupt, b.name(p.Segment))
	}
	from := len(dst)
	dst = slices.Grow(dst, int(p.Length))[:from+int(p.Length)]
	if _, err := s.file.ReadAt(dst[from:], p.Offset); err != nil {
		return dst[:from], fmt.Errorf("%w: reading %d bytes at %d of %s: %w", ErrCorrupt, p.Length, p.Offset, b.name(p.Segment), err)
	}
	if crc32.Checksum(dst[from:], b.table) != p.Sum {
		return dst[:from], fmt.Errorf("%w: %d bytes at %d of %s have another checksum than when they were written", ErrCorrupt, p.Length, p.Offset, b.name(p.Segment))
	}
	return dst, nil
}

// use counts a reference to a file.
func (b *bodies) use(number uint32, sign int) {
	b.mu.RLock()
	s := b.segments[number]
	b.mu.RUnlock()
	if s == nil {
		return
	}
	s.live += sign
	b.idle = b.idle || s.live == 0
}

// tidy deletes the files that nothing refers to and nothing will be added to. It must not be called while bodies are
// written whose index is not: their file may have no references yet.
func (b *bodies) tidy() {
	if !b.idle {
		return
	}
	b.idle = false
	b.mu.RLock()
	var unused []*segment
	for _, s := range b.segments {
		if s.live == 0 && s != b.current {
			unused = append(unused, s)
		}
	}
	b.mu.RUnlock()
	for _, s := range unused {
		b.remove(s)
	}
}

// remove deletes a file. Should that fail, the next start tries again.
func (b *bodies) remove(s *segment) {
	b.mu.Lock()
	delete(b.segments, s.number)
	b.mu.Unlock()
	_ = s.file.Close()
	_ = os.Remove(b.name(s.number))
}

// sync forces the given files to the disk.
func (b *bodies) sync(touched map[uint32]bool) error {
	for number := range touched {
		b.mu.RLock()
		s := b.segments[number]
		b.mu.RUnlock()
		if s == nil {
			continue
		}
		if err := datasync(s.file); err != nil {
			return fmt.Errorf("forcing trajectory bodies to the disk: %w", err)
		}
	}
	return nil
}

func (b *bodies) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	for _, s := range b.segments {
		err = errors.Join(err, s.file.Close())
	}
	clear(b.segments)
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the store's own folder
	if err != nil {
		return fmt.Errorf("forcing a folder to the disk: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems do not sync folders
		return fmt.Errorf("forcing a folder to the disk: %w", err)
	}
	return nil
}
