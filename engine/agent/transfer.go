package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Missing are the digests of those files that are not on the agent's machine.
func (c *Client) Missing(ctx context.Context, files []File) ([]string, error) {
	out, err := c.ask(ctx, Request{Op: opMissing, Files: files})
	return out.Missing, err
}

// Put sends a file, or what is missing of it after an earlier attempt; sent is called with how many bytes are there.
func (c *Client) Put(ctx context.Context, f File, from io.ReadSeeker, sent func(int64)) error {
	stream, out, err := c.open(ctx, Request{Op: opPut, Files: []File{f}})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := from.Seek(out.Offset, io.SeekStart); err != nil {
		return err
	}
	sent(out.Offset)
	reader := io.TeeReader(from, counter{at: out.Offset, sent: sent}.writer())
	n, err := io.CopyN(idleWriter{stream}, reader, f.Size-out.Offset)
	if err == io.EOF { //nolint:errorlint // as CopyN returns it
		return fmt.Errorf("%s has %d bytes, expected %d: it has changed while it was staged", f.Path, out.Offset+n, f.Size)
	}
	if err != nil {
		return cut(ctx, err)
	}
	var answer Response
	_ = stream.SetReadDeadline(time.Now().Add(stagingIdle))
	if err := readLine(bufio.NewReader(stream), &answer); err != nil {
		return cut(ctx, err)
	}
	return answer.err()
}

// cut is the error of a transfer that the end of a connection, or of the context, has ended.
func cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}

// counter tells how far a transfer is.
type counter struct {
	at   int64
	sent func(int64)
}

func (c counter) writer() io.Writer { return &c }

func (c *counter) Write(b []byte) (int, error) {
	c.at += int64(len(b))
	c.sent(c.at)
	return len(b), nil
}

// Place copies files that are on the agent's machine into the folder of its job, and makes folders there.
func (c *Client) Place(ctx context.Context, files []File, folders []string) error {
	_, err := c.ask(ctx, Request{Op: opPlace, Files: files, Folders: folders})
	return err
}

// List lists the files of the run's directory on the agent's machine.
func (c *Client) List(ctx context.Context) ([]Entry, error) {
	out, err := c.ask(ctx, Request{Op: opList})
	return out.Entries, err
}

// Get writes a file of the run's directory on the agent's machine, from an offset on, and returns how many bytes it has
// written. The error is fs.ErrNotExist when the file was removed.
func (c *Client) Get(ctx context.Context, path string, offset int64, to io.Writer) (int64, error) {
	stream, out, err := c.open(ctx, Request{Op: opGet, Path: path, Offset: offset})
	if err != nil {
		return 0, err
	}
	defer func() { _ = stream.Close() }()
	if len(out.Missing) > 0 {
		return 0, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	from := &reader{from: idleReader{stream}}
	n, err := io.CopyN(to, from, out.Size)
	if from.err != nil {
		return n, cut(ctx, from.err)
	}
	return n, err
}

// reader tells an error of the connection from one of the file.
type reader struct {
	from io.Reader
	err  error
}

func (r *reader) Read(b []byte) (n int, err error) {
	n, err = r.from.Read(b)
	if err != nil {
		r.err = err
	}
	return n, err
}
