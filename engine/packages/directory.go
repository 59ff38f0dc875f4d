package packages

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
)

// perDirectoryEntry is how many bytes one file may take in the directory of a zip: its name, and what programs add to
// it.
const perDirectoryEntry = maxName + 512

// openZip opens a zip that somebody else made. Its directory is read before a limit can be compared with it, and an
// entry takes many times as much memory as it has bytes, so the bytes are counted while they are read.
func openZip(r io.ReaderAt, size int64, limit limits) (*zip.Reader, error) {
	directory := &countedReader{from: r, left: int64(limit.files)*perDirectoryEntry + 256<<10}
	z, err := zip.NewReader(directory, size)
	if directory.left < 0 {
		err = fmt.Errorf("the archive's directory is too large: at most %d files are allowed", limit.files)
	} else if err != nil {
		err = fmt.Errorf("read the archive: %w", err)
	}
	directory.opened = true
	return z, err
}

// countedReader reads no more than what is left, until the archive is opened.
type countedReader struct {
	from   io.ReaderAt
	left   int64
	opened bool
}

var errDirectory = errors.New("the directory is too large")

// ReadAt implements io.ReaderAt.
func (c *countedReader) ReadAt(p []byte, at int64) (int, error) {
	if !c.opened {
		if c.left -= int64(len(p)); c.left < 0 {
			return 0, errDirectory
		}
	}
	return c.from.ReadAt(p, at)
}
