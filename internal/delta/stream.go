package delta

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A stream is a line of JSON (opening), then for each part a line of JSON (piece) and its packed bytes.

// format is the version of the stream's form.
const format = 1

type opening struct {
	Format int    `json:"format"`
	Base   string `json:"base,omitempty"` // digest of the folder that it starts from; empty: none is needed
	Digest string `json:"digest"`         // of the folder that comes out
	Parts  int    `json:"parts"`
}

type piece struct {
	part
	Form   string `json:"form"`             // same, changes, planes or whole
	Packed int    `json:"packed,omitempty"` // bytes that follow
}

// Stats describes how much of a folder has changed.
type Stats struct {
	Bytes   int64 // of the folder
	Packed  int64 // of the stream
	Changed int64 // bytes that differ from the base; all of them without a base
}

// Write writes what makes base into next; base nil: next as a whole.
func Write(w io.Writer, next, base *Folder) (Stats, error) {
	counted := &counter{w: w}
	out := bufio.NewWriterSize(counted, 1<<20)
	head := opening{Format: format, Digest: next.Digest, Parts: len(next.parts)}
	before := map[string]part{}
	if base != nil {
		head.Base = base.Digest
		for _, p := range base.parts {
			before[p.id()] = p
		}
	}
	stats := Stats{Bytes: next.Bytes}
	err := writeLine(out, head)
	if err == nil {
		err = inOrder(len(next.parts), func(i int) (packed, error) {
			return packPart(next, base, next.parts[i], before)
		}, func(p packed) error {
			stats.Changed += p.changed
			return errors.Join(writeLine(out, p.piece), write(out, p.data))
		})
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return stats, fmt.Errorf("pack the weights in %s: %w", next.Path, err)
	}
	stats.Packed = counted.n
	return stats, nil
}

type packed struct {
	piece
	data    []byte
	changed int64
}

// packPart packs a part of next.
func packPart(next, base *Folder, p part, before map[string]part) (packed, error) {
	out := packed{piece: piece{part: p}}
	old, known := before[p.id()]
	if known && old.Sum == p.Sum && old.Size == p.Size {
		out.Form = same
		return out, nil
	}
	data, err := next.read(p)
	if err != nil {
		return out, err
	}
	var earlier []byte
	out.changed = int64(p.Size)
	if known && old.Size == p.Size {
		if earlier, err = base.read(old); err != nil {
			return out, err
		}
		out.changed = differing(data, earlier)
	}
	out.Form, out.data, err = pack(data, earlier, p.Width)
	out.Packed = len(out.data)
	return out, err
}

// differing counts the bytes in which two parts differ.
func differing(a, b []byte) (n int64) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// ErrBase reports that a stream starts from another folder than the one that is there.
var ErrBase = errors.New("the difference is from other weights than those that are here")

// Apply reads a stream and writes the folder that comes out to path, which must not exist. Base is the folder that the
// stream starts from. An error leaves no folder: each part and the whole are compared with their checksums.
func Apply(r io.Reader, base *Folder, path string) (*Folder, error) {
	temporary := path + ".tmp"
	f, err := apply(bufio.NewReaderSize(r, 1<<20), base, temporary)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack weights into %s: %w", path, err), os.RemoveAll(temporary))
	}
	f.Path = path
	return f, nil
}

func apply(in *bufio.Reader, base *Folder, path string) (*Folder, error) {
	var head opening
	if err := readLine(in, &head); err != nil {
		return nil, err
	}
	before := map[string]part{}
	switch {
	case head.Format != format:
		return nil, fmt.Errorf("it has form %d, this program reads %d: use one version of recipe on all machines",
			head.Format, format)
	case head.Base != "" && (base == nil || base.Digest != head.Base):
		return nil, ErrBase
	case base != nil:
		for _, p := range base.parts {
			before[p.id()] = p
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	files := &files{root: path, open: map[string]*os.File{}}
	out := &Folder{Path: path, Digest: head.Digest}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	err := func() error {
		for range head.Parts {
			var p piece
			if err := readLine(in, &p); err != nil {
				return err
			}
			data, err := take(in, p)
			if err != nil {
				return err
			}
			out.parts, out.Bytes = append(out.parts, p.part), out.Bytes+int64(p.Size)
			group.Go(func() error { return unpackPart(p, data, base, before[p.id()], files) })
		}
		return nil
	}()
	if err = errors.Join(err, group.Wait(), files.close()); err != nil {
		return nil, err
	}
	if digestOf(out.parts) != head.Digest {
		return nil, errors.New("the checksum of the whole differs: a part is missing or was changed")
	}
	return out, nil
}

// firstRead is how much of a part is read before more memory is taken for it.
const firstRead = 1 << 20

// take reads the packed bytes of a part, after a look at what the line says.
func take(in io.Reader, p piece) ([]byte, error) {
	known := slices.Contains([]string{same, changes, planes, whole}, p.Form) && slices.Contains([]int{1, 2, 4, 8}, p.Width)
	if !known || p.Size < 0 || p.Size > mostPart || p.Packed < 0 || p.Packed > 2*mostPart || p.At < 0 ||
		!filepath.IsLocal(filepath.FromSlash(p.File)) {
		return nil, fmt.Errorf("part %q of %q has a form, sizes or a name that cannot be", p.Tensor, p.File)
	}
	// A line of a hundred bytes does not take the memory that it names before that has come.
	data := make([]byte, 0, min(p.Packed, firstRead))
	for len(data) < p.Packed {
		n := min(p.Packed-len(data), max(len(data), firstRead))
		data = slices.Grow(data, n)
		if _, err := io.ReadFull(in, data[len(data):len(data)+n]); err != nil {
			return nil, fmt.Errorf("read %s: %w", p.File, err)
		}
		data = data[:len(data)+n]
	}
	return data, nil
}

// unpackPart writes a part to its file.
func unpackPart(p piece, data []byte, base *Folder, old part, files *files) error {
	var earlier []byte
	var err error
	if p.Form != whole {
		if base == nil || old.Size != p.Size {
			return ErrBase
		}
		if earlier, err = base.read(old); err != nil {
			return err
		}
	}
	content := earlier
	if p.Form != same {
		if content, err = unpack(p.Form, data, earlier, p.Width, p.Size); err != nil {
			return fmt.Errorf("%s of %s: %w", p.Tensor, p.File, err)
		}
	}
	if sumOf(content) != p.Sum {
		return fmt.Errorf("the checksum of %q of %s differs", p.Tensor, p.File)
	}
	return files.write(p.File, p.At, content)
}

// files are those that are being written.
type files struct {
	root string
	mu   sync.Mutex
	open map[string]*os.File
}

func (f *files) write(name string, at int64, data []byte) error {
	file, err := f.file(name)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, at)
	return err
}

func (f *files) file(name string) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file := f.open[name]; file != nil {
		return file, nil
	}
	path := filepath.Join(f.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		f.open[name] = file
	}
	return file, err
}

func (f *files) close() error {
	var errs []error
	for _, file := range f.open {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// inOrder calls make for 0 to n-1 on all processors, and use with the results one after the other.
func inOrder[T any](n int, produce func(int) (T, error), use func(T) error) error {
	results := make([]chan T, n)
	for i := range results {
		results[i] = make(chan T, 1)
	}
	group, ctx := errgroup.WithContext(context.Background())
	ahead := make(chan struct{}, 2*runtime.GOMAXPROCS(0)) // results that are made or wait
	group.Go(func() error {
		for _, result := range results {
			select {
			case value := <-result:
				<-ahead
				if err := use(value); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for i := range n {
		select {
		case ahead <- struct{}{}:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error {
			value, err := produce(i)
			if err == nil {
				results[i] <- value
			}
			return err
		})
	}
	return group.Wait()
}

func writeLine(w io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return write(w, append(data, '\n'))
}

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// mostLine bounds a line.
const mostLine = 1 << 16

func readLine(in *bufio.Reader, value any) error {
	line, err := in.ReadSlice('\n')
	if err != nil || len(line) > mostLine {
		return fmt.Errorf("read a line of the difference: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return json.Unmarshal(line, value)
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
