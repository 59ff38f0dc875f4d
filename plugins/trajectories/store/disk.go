package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Disk keeps groups in a log of append-only files, and an index of them in a bbolt database beside it. One goroutine
// writes: it commits whatever has been submitted in the meantime at once, with one forced write, so that many posts
// share its cost. The index follows behind (see checkpoint.go).
type Disk struct {
	dir    string
	always bool // force every commit to the disk
	every  int  // groups between two checkpoints
	sync   func(*os.File) error
	db     *bolt.DB
	bodies *bodies

	mu      sync.Mutex
	pending []submission
	closed  bool
	wake    chan struct{}
	done    chan struct{}

	freshMu sync.RWMutex
	fresh   map[uint64]place // what the index does not know yet; the zero place stands for an ended group

	// Only the committer uses what follows, and recovery before it starts.
	companions int       // changes in the last commit
	recent     []*record // since the last checkpoint
	groups     int       // put by them
	appended   *record   // written, not yet forced
	broken     error     // a failed sync: nothing after it can be trusted
	waiting    waiting
	sparse     bool // there was a file to move when the store was opened: the first commit leads to it
}

type submission struct {
	change Change
	ticket *Ticket
}

var _ Store = (*Disk)(nil)

// The buckets of the index.
var (
	bucketGroups  = []byte("groups")  // id → record
	bucketBatches = []byte("batches") // number → Batch as JSON
	bucketState   = []byte("state")   // keyState, keyLast, keyFormat, keyPosition
	bucketKeys    = []byte("keys")    // count → Key, see keys.go
	keyState      = []byte("state")
	keyLast       = []byte("last")
	keyFormat     = []byte("format")
)

const format = "recipe trajectories 1"

// DiskOptions say how a disk store writes. The zero value never forces anything to the disk.
type DiskOptions struct {
	// Always forces every commit to the disk before it is confirmed, which survives a power cut.
	Always bool
	// SegmentBytes is the size at which a file of the log is full; 0 means 64 MiB.
	SegmentBytes int64
	// Wait is how long groups wait for room on a full disk before they are refused with ErrFull. What ends groups does
	// not wait: that is how room is made.
	Wait time.Duration
	// Room is called with the reason when groups begin to wait, and with "" when none waits any more. It must not call the
	// store.
	Room func(waiting string)
}

// indexName is the file of the index in the folder of a store.
const indexName = "index.db"

func damaged(index string, err error) error {
	return fmt.Errorf("%s is not the index of a trajectory store, or is damaged: %w; move it away, or choose another "+
		"folder", index, err)
}

// checkIndex reads all pages of an index. bbolt reads them, too, when it opens a file to be written, but in a goroutine
// of its own, where its panic about a damaged page ends the process. What other errors there are, OpenDisk finds.
func checkIndex(index string) (err error) {
	info, err := os.Lstat(index)
	if err != nil || info.Size() == 0 {
		return nil //nolint:nilerr // it is made
	}
	db, err := bolt.Open(index, 0o600, &bolt.Options{Timeout: time.Second, ReadOnly: true, OpenFile: openRegular})
	if err != nil {
		return nil //nolint:nilerr // opening it to be written says more
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // beyond the end of a file that was cut short
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	left := info.Size()
	return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return readAll(b, &left) })
}

// readAll reads what is in a bucket. Names and values are slices of the mapped file, and bbolt believes what a page
// says of their lengths: to read what is beyond the file would end the process. Left is what of the file they may still
// take.
func readAll(b *bolt.Bucket, left *int64) error {
	return b.ForEach(func(name, value []byte) error {
		if *left -= int64(len(name) + len(value)); *left < 0 {
			return fmt.Errorf("its values are longer than the file, the last one of %d bytes", len(value))
		}
		if inner := b.Bucket(name); value == nil && inner != nil {
			return readAll(inner, left)
		}
		return nil
	})
}

// OpenDisk opens or creates a store in a folder. Only one process can have it open.
func OpenDisk(dir string, o DiskOptions) (d *Disk, err error) {
	index := filepath.Join(dir, indexName)
	defer func() {
		if r := recover(); r != nil { // of bbolt, where a page contradicts another one
			d, err = nil, damaged(index, fmt.Errorf("%v", r))
		}
	}()
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = segmentSize
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the trajectory store %s: %w; choose a folder that can be written to", dir, err)
	}
	if err := checkIndex(index); err != nil {
		return nil, damaged(index, err)
	}
	if err := ownFile(index); err != nil {
		return nil, fmt.Errorf("copying the index of the trajectory store %s, which has a second name: %w", dir, full(err))
	}
	db, err := bolt.Open(
		index,
		0o600,
		&bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoSync: !o.Always,
			OpenFile: openRegular},
	)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf(
			"the trajectory store %s is in use by another process: stop it, or choose another folder",
			dir,
		)
	case errors.Is(err, berrors.ErrInvalid),
		errors.Is(err, berrors.ErrVersionMismatch),
		errors.Is(err, berrors.ErrChecksum):
		return nil, damaged(index, err)
	case err != nil:
		return nil, fmt.Errorf("opening the trajectory store %s: %w", dir, err)
	}
	d = &Disk{
		dir: dir, waiting: waiting{limit: o.Wait, report: o.Room}, always: o.Always, every: checkpointGroups, sync: datasync,
		db: db, fresh: map[uint64]place{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if d.bodies, err = openBodies(filepath.Join(dir, "log"), o.SegmentBytes); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := d.recover(); err != nil {
		return nil, errors.Join(err, d.bodies.close(), db.Close())
	}
	d.bodies.reuse = o.Always // an order in which names and seeds reach the disk is needed
	go d.commits()
	return d, nil
}

// prepare creates the buckets of a new index and recognizes an index of something else.
func (d *Disk) prepare() error {
	err := d.db.Update(func(tx *bolt.Tx) error {
		if state := tx.Bucket(bucketState); state != nil {
			if got := string(state.Get(keyFormat)); got != format {
				return fmt.Errorf("its format is %q, this program knows %q", got, format)
			}
			_, err := tx.CreateBucketIfNotExists(bucketKeys) // stores of earlier programs have none
			return err
		}
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("it is the database of another program (it holds %q)", name)
		}
		for _, name := range [][]byte{bucketGroups, bucketBatches, bucketState, bucketKeys} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketState).Put(keyFormat, []byte(format))
	})
	if err != nil {
		return fmt.Errorf("preparing the trajectory store %s: %w; choose another folder", d.dir, full(err))
	}
	return syncDir(d.dir)
}

// encode is the index entry of a group.
func (p place) encode(m Meta) []byte {
	b := binary.AppendUvarint(nil, uint64(p.Segment))
	b = binary.AppendUvarint(b, uint64(p.Offset))
	b = binary.AppendUvarint(b, uint64(p.Length))
	b = binary.BigEndian.AppendUint32(b, p.Sum)
	for _, v := range []int64{int64(m.Env), int64(m.Size), int64(m.Tokens), int64(m.Longest), m.Bytes, m.MinVersion,
		m.MaxVersion, int64(m.Place), m.At} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func decode(b []byte) (p place, m Meta, err error) {
	bad := false
	unsigned := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	p.Segment, p.Offset, p.Length = uint32(unsigned()), int64(unsigned()), int64(unsigned())
	if bad || len(b) < 4 {
		return p, m, errors.New("a record of the index is too short")
	}
	p.Sum, b = binary.BigEndian.Uint32(b), b[4:]
	var v [9]int64
	for i := range v {
		n := 0
		if v[i], n = binary.Varint(b); n <= 0 {
			return p, m, errors.New("a record of the index is too short")
		}
		b = b[n:]
	}
	m = Meta{Env: int(v[0]), Size: int(v[1]), Tokens: int(v[2]), Longest: int(v[3]), Bytes: v[4],
		MinVersion: v[5], MaxVersion: v[6], Place: uint64(v[7]), At: v[8]}
	return p, m, nil
}

func key(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// Scan reads the index. Groups whose bodies are damaged or gone are reported when they are read, not here.
func (d *Disk) Scan(ctx context.Context, each func(uint64, Meta) error) (Snapshot, error) {
	var s Snapshot
	err := d.db.View(func(tx *bolt.Tx) (err error) {
		state := tx.Bucket(bucketState)
		if doc := state.Get(keyState); doc != nil {
			s.State = append(json.RawMessage(nil), doc...)
		}
		if last := state.Get(keyLast); len(last) == 8 {
			s.LastID = binary.BigEndian.Uint64(last)
		}
		if err := tx.Bucket(bucketBatches).ForEach(func(_, v []byte) error {
			var b Batch
			if err := json.Unmarshal(v, &b); err != nil {
				return err
			}
			s.Batches = append(s.Batches, b)
			return nil
		}); err != nil {
			return err
		}
		if s.Keys, err = readKeys(tx.Bucket(bucketKeys)); err != nil {
			return err
		}
		return tx.Bucket(bucketGroups).ForEach(func(k, v []byte) error {
			_, m, err := decode(v)
			if err != nil {
				return err
			}
			id := binary.BigEndian.Uint64(k)
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return each(id, m)
		})
	})
	if err != nil {
		return s, fmt.Errorf("reading the index of the trajectory store %s: %w", d.dir, err)
	}
	return s, nil
}

// Body reads a body back.
func (d *Disk) Body(_ context.Context, id uint64, dst []byte) ([]byte, error) {
	var before place
	for {
		p, err := d.where(id)
		if err != nil {
			return dst, fmt.Errorf("group %d: %w", id, err)
		}
		dst, err = d.bodies.read(p, dst)
		if err == nil {
			return dst, nil
		}
		if p == before {
			return dst, fmt.Errorf("group %d: %w", id, err)
		}
		before = p // it may have been moved in this moment: then it is found elsewhere
	}
}

// where finds a body.
func (d *Disk) where(id uint64) (p place, err error) {
	d.freshMu.RLock()
	p, fresh := d.fresh[id]
	d.freshMu.RUnlock()
	if fresh {
		if p.Length == 0 {
			return p, ErrNotFound
		}
		return p, nil
	}
	err = d.db.View(func(tx *bolt.Tx) (err error) {
		text := tx.Bucket(bucketGroups).Get(key(id))
		if text == nil {
			return ErrNotFound
		}
		p, _, err = decode(text)
		return err
	})
	return p, err
}

// Close commits what was submitted and closes the files.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.poke()
	<-d.done
	err := d.checkpoint()
	d.bodies.discard()
	return errors.Join(err, d.bodies.close(), d.db.Close())
}

// full converts the system's errors for "no space" to ErrFull.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
