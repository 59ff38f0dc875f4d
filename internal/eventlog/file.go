package eventlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// A record is length (4 bytes, little endian), CRC-32C of the payload (4 bytes), payload.
const headerSize = 8

// maxRecord bounds what a damaged length can make a reader allocate.
const maxRecord = 16 << 20

// file is the current file of the log and, once that was full, the one before it.
type file struct {
	path string
	f    *os.File
	size int64 // of whole records
	max  int64 // of one of the two files
	torn bool  // a part of a record may lie after size
	// handle is the newest event that names programs to find again. It is written again into each file, since it may be
	// the only event that a later engine needs of a long attempt.
	handle  *event.Event
	seal    seal
	outputs *spec.Schema
	owed    *event.Event // the handle, while it has yet to be written into this file
}

func oldPath(path string) string { return path + ".old" }

func create(path string, most int64, outputs *spec.Schema, s seal) (*file, error) {
	if err := os.Remove(oldPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := regular.Create(path, os.O_APPEND)
	if err != nil {
		return nil, err
	}
	return &file{path: path, f: f, max: most, outputs: outputs, seal: s}, nil
}

func (s *file) append(e event.Event) error {
	message, err := wire.EncodeEvent(s.seal.close(e), s.outputs)
	if err != nil {
		return err
	}
	payload, err := proto.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	if s.size > 0 && s.size+headerSize+int64(len(payload)) > s.max {
		if err := s.rotate(); err != nil {
			return err
		}
		s.owed = s.handle
	}
	if owed := s.owed; owed != nil {
		s.owed = nil
		if err := s.append(*owed); err != nil {
			s.owed = owed
			return err
		}
	}
	if _, ok := e.Body.(event.Handle); ok {
		s.handle = &e
	}
	record := make([]byte, headerSize, headerSize+len(payload))
	binary.LittleEndian.PutUint32(record, uint32(len(payload)))
	binary.LittleEndian.PutUint32(record[4:], checksum(payload))
	if s.torn {
		if err := s.f.Truncate(s.size); err != nil {
			return err
		}
		s.torn = false
	}
	n, err := s.f.Write(append(record, payload...))
	if err != nil { // nothing after a partial record could be read
		s.torn = n > 0 && s.f.Truncate(s.size) != nil
		return err
	}
	s.size += int64(n)
	return nil
}

// rotate continues in a new file. When that cannot be made, the previous one stays open.
func (s *file) rotate() error {
	next := s.path + ".new"
	f, err := regular.Create(next, os.O_APPEND)
	if err != nil {
		return err
	}
	if err = os.Rename(s.path, oldPath(s.path)); err == nil {
		err = os.Rename(next, s.path)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	err = s.f.Close()
	s.f, s.size, s.torn = f, 0, false
	return err
}

func (s *file) close() error { return s.f.Close() }

// read returns the events with after < Seq < before.
func (s *file) read(after, before uint64) ([]event.Event, error) {
	events, err := readFiles(s.path, s.outputs, func(seq uint64) bool { return seq > after && seq < before })
	for i, e := range events {
		events[i] = s.seal.open(e)
	}
	return events, err
}

// Read returns the events after a sequence number from the files of a log whose plugin is dead, with gaps filled as
// Next does. Outputs is the schema of the block's outputs. A record that was being written when the plugin died ends
// its file. Missing files hold no events.
func Read(path string, after uint64, outputs *spec.Schema) ([]event.Event, error) {
	events, err := readFiles(path, outputs, func(seq uint64) bool { return seq > after })
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	return withGaps(after, events), nil
}

// LastHandle returns the newest handle in the files of a log whose plugin is dead; nil: there is none.
func LastHandle(path string) (handle []byte, err error) {
	err = messages(path, func(m *pluginpb.Event) error {
		if h := m.GetHandle(); h != nil {
			handle = h.GetData()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	return handle, nil
}

func readFiles(path string, outputs *spec.Schema, want func(seq uint64) bool) (events []event.Event, err error) {
	err = messages(path, func(m *pluginpb.Event) error {
		if !want(m.GetSeq()) || len(events) > 0 && m.GetSeq() <= events[len(events)-1].Seq {
			return nil
		}
		e, err := wire.DecodeEvent(m, outputs)
		events = append(events, e)
		return err
	})
	return events, err
}

// messages calls each for what is in both files, in order.
func messages(path string, each func(*pluginpb.Event) error) error {
	for _, name := range []string{oldPath(path), path} {
		f, _, err := regular.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = records(f, each)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// records calls each for every whole record. A torn or damaged record ends the file: nothing after it can be trusted.
func records(r io.Reader, each func(*pluginpb.Event) error) error {
	buffered := bufio.NewReaderSize(r, 64<<10)
	for {
		var header [headerSize]byte
		if _, err := io.ReadFull(buffered, header[:]); err != nil {
			return ignoreEnd(err)
		}
		length := binary.LittleEndian.Uint32(header[:])
		if length > maxRecord {
			return nil
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(buffered, payload); err != nil {
			return ignoreEnd(err)
		}
		if checksum(payload) != binary.LittleEndian.Uint32(header[4:]) {
			return nil
		}
		e := &pluginpb.Event{}
		if err := proto.Unmarshal(payload, e); err != nil {
			return nil //nolint:nilerr // a damaged record ends the file
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func checksum(payload []byte) uint32 {
	return crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
}
