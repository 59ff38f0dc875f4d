package store

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// FuzzFrames: whatever a frame with a right checksum says, replaying it ends, and every body lies in the file.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"put":[{"id":1,"length":3,"sum":0,"meta":{}}]}`), []byte("abc"))
	f.Add([]byte(`{"put":[{"id":1,"length":-1},{"id":2,"length":9223372036854775807}]}`), []byte("abc"))
	f.Add([]byte(`{"changes":[{"place":{"1":18446744073709551615},"state":null,"ended":[0]}]}`), []byte{})
	name := filepath.Join(f.TempDir(), "00000001.log")
	f.Fuzz(func(t *testing.T, text, bodies []byte) {
		file := append([]byte(magic), make([]byte, headSize-len(magic))...)
		head := make([]byte, frameHead)
		binary.LittleEndian.PutUint32(head, frameMark)
		binary.LittleEndian.PutUint32(head[4:], uint32(len(text)))
		binary.LittleEndian.PutUint64(head[8:], uint64(len(bodies)))
		seed := segment{seed: seedOf(file)}
		binary.LittleEndian.PutUint32(head[16:], seed.sum(int64(headSize), head[:16], text))
		file = append(append(append(file, head...), text...), bodies...)
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openSegment(name, 1)
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		defer func() { _ = s.file.Close() }()
		_, err = s.replay(int64(headSize), func(r *record) error {
			for _, p := range r.Put {
				if p.Length < 0 || p.place.Offset+p.Length > int64(len(file)) {
					t.Errorf("a body of %d bytes at %d in a file of %d", p.Length, p.place.Offset, len(file))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
