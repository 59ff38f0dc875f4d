// Package delta carries weights to a machine that shares no files with their writer: a folder of files as the
// difference from a folder that the other side holds. A checkpoint in safetensors is compared tensor by tensor, any
// other file as a whole. What arrives is the same to the last bit: every part and the whole have a checksum, which the
// reader compares.
package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A part is what is compared, packed and checked at a time: a tensor, a piece of a large one, the header of a
// safetensors file, or a piece of another file.
type part struct {
	File   string `json:"file"` // relative to the folder, with slashes
	Tensor string `json:"tensor,omitempty"`
	Piece  int    `json:"piece,omitempty"` // of the tensor or file, from 0
	At     int64  `json:"at"`              // in the file
	Size   int    `json:"size"`            // bytes
	Width  int    `json:"width"`           // bytes of an element
	Sum    string `json:"sum"`             // SHA-256
}

// id names the same part in folders of other versions.
func (p part) id() string { return fmt.Sprintf("%s\x00%s\x00%d", p.File, p.Tensor, p.Piece) }

// mostPart bounds the memory that a part takes.
const mostPart = 64 << 20

// Folder is a folder of weights whose content is known.
type Folder struct {
	Path   string
	Digest string // of all files; equal for the same files everywhere
	Bytes  int64
	parts  []part
}

// Read reads a folder once, to know its content.
func Read(path string) (*Folder, error) {
	f := &Folder{Path: path}
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(path, at)
		if err != nil {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is no regular file", at)
		}
		parts, err := partsOf(at, filepath.ToSlash(name))
		f.parts = append(f.parts, parts...)
		return err
	})
	if err == nil {
		err = f.sum()
	}
	if err != nil {
		return nil, fmt.Errorf("read the weights in %s: %w", path, err)
	}
	return f, nil
}

// sum computes the checksums.
func (f *Folder) sum() error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range f.parts {
		f.Bytes += int64(f.parts[i].Size)
		group.Go(func() error {
			data, err := f.read(f.parts[i])
			f.parts[i].Sum = sumOf(data)
			return err
		})
	}
	err := group.Wait()
	f.Digest = digestOf(f.parts)
	return err
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// digestOf is the checksum of a whole folder.
func digestOf(parts []part) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s\x00%d\x00%d\x00%s\n", p.id(), p.At, p.Size, p.Sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// read returns the bytes of a part.
func (f *Folder) read(p part) ([]byte, error) {
	file, err := os.Open(filepath.Join(f.Path, filepath.FromSlash(p.File)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, p.Size)
	_, err = file.ReadAt(data, p.At)
	return data, err
}

// partsOf divides a file into parts without gaps.
func partsOf(path, name string) ([]part, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size == 0 {
		return []part{{File: name, Width: 1}}, nil
	}
	if filepath.Ext(name) == ".safetensors" {
		if parts := tensorsOf(file, name, size); parts != nil {
			return parts, nil
		}
	}
	return pieces(part{File: name, Width: 1}, size), nil
}

// pieces divides a part of a size.
func pieces(p part, size int64) []part {
	var out []part
	for ; size > 0; size -= mostPart {
		p.Size = int(min(size, mostPart))
		out = append(out, p)
		p.At, p.Piece = p.At+mostPart, p.Piece+1
	}
	return out
}

// mostHeader bounds the header of a safetensors file, as the format itself does.
const mostHeader = 100 << 20

// tensorsOf divides a safetensors file: eight bytes that give the length of a header in JSON, the header, and the
// tensors. It returns nil when the file is none.
func tensorsOf(file *os.File, name string, size int64) []part {
	var length [8]byte
	if _, err := file.ReadAt(length[:], 0); err != nil {
		return nil
	}
	begin := binary.LittleEndian.Uint64(length[:])
	if begin > mostHeader || int64(begin)+8 > size {
		return nil
	}
	header := make([]byte, begin)
	if _, err := file.ReadAt(header, 8); err != nil {
		return nil
	}
	var entries map[string]json.RawMessage
	if json.Unmarshal(header, &entries) != nil {
		return nil
	}
	type tensor struct {
		name    string
		Dtype   string   `json:"dtype"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	var tensors []tensor
	for key, raw := range entries {
		t := tensor{name: key}
		if key == "__metadata__" {
			continue
		}
		if json.Unmarshal(raw, &t) != nil {
			return nil
		}
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b tensor) int {
		if a.Offsets != b.Offsets {
			return int(min(max(a.Offsets[0]-b.Offsets[0], -1), 1))
		}
		return strings.Compare(a.name, b.name)
	})
	at := int64(begin) + 8
	out := pieces(part{File: name, Width: 1}, at)
	for _, t := range tensors {
		if int64(begin)+8+t.Offsets[0] != at || t.Offsets[1] < t.Offsets[0] || int64(begin)+8+t.Offsets[1] > size {
			return nil // tensors that overlap or leave gaps: compared as a plain file
		}
		out = append(out, pieces(part{File: name, Tensor: t.name, At: at, Width: width(t.Dtype)},
			t.Offsets[1]-t.Offsets[0])...)
		at = int64(begin) + 8 + t.Offsets[1]
	}
	if at != size {
		return nil
	}
	return out
}

// width is how many bytes an element of a dtype of safetensors has.
func width(dtype string) int {
	switch dtype {
	case "F64", "I64", "U64":
		return 8
	case "F32", "I32", "U32":
		return 4
	case "F16", "BF16", "I16", "U16":
		return 2
	}
	return 1
}
