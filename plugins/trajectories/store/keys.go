package store

import (
	"encoding/binary"
	"errors"

	bolt "go.etcd.io/bbolt"
)

// Keys are stored in the index under a growing count, so that the oldest come first.

// addKeys appends keys and forgets those that are too old.
func addKeys(b *bolt.Bucket, keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	b.FillPercent = 0.9
	for _, k := range keys {
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		text := binary.AppendUvarint(
			binary.BigEndian.AppendUint32(nil, k.Sum),
			uint64(max(k.Groups, 0)),
		)
		if err := b.Put(key(n), append(text, k.Name...)); err != nil {
			return err
		}
	}
	for {
		oldest, _ := b.Cursor().First()
		if len(oldest) != 8 || binary.BigEndian.Uint64(oldest)+KeepKeys > b.Sequence() {
			return nil
		}
		if err := b.Delete(oldest); err != nil {
			return err
		}
	}
}

// readKeys returns all keys, the oldest first.
func readKeys(b *bolt.Bucket) (keys []Key, err error) {
	err = b.ForEach(func(_, v []byte) error {
		if len(v) < 5 {
			return errors.New("a key of the index is too short")
		}
		groups, n := binary.Uvarint(v[4:])
		if n <= 0 {
			return errors.New("a key of the index is too short")
		}
		keys = append(
			keys,
			Key{Name: append([]byte(nil), v[4+n:]...), Sum: binary.BigEndian.Uint32(v), Groups: int(groups)},
		)
		return nil
	})
	return keys, err
}
