package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

const defaultMaxLog = 64 << 20

// logFile is the file that a program writes to. The program holds it open itself, so it is rotated by copying the end
// and truncating: it is opened for appending, so the program continues at the start. Lines written between the two are
// lost; the log must not pass through the plugin, because the program outlives it.
type logFile struct {
	path string
	f    *os.File
	max  int64
}

func openLog(path string, most int64) (*logFile, error) {
	if most <= 0 {
		most = defaultMaxLog
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, f: f, max: most}, nil
}

// rotate keeps the newest half of a log that has grown beyond its size in PATH.1. A failure (a full disk) leaves the
// log as it is: losing lines would be worse.
func (l *logFile) rotate() {
	info, err := l.f.Stat()
	if err != nil || info.Size() <= l.max {
		return
	}
	if copyEnd(l.path, l.path+".1", info.Size(), l.max) == nil {
		_ = l.f.Truncate(0)
	}
}

func copyEnd(from, to string, size, most int64) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if _, err := in.Seek(max(0, size-most), io.SeekStart); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.CopyN(out, in, min(size, most))
	return err
}

func (l *logFile) close() error { return l.f.Close() }

// tailBytes bounds how much of the end of a file Tail looks at.
const tailBytes = 64 << 10

// Tail returns the last lines of a file, at most n, without a final newline; empty when it cannot be read.
func Tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if _, err := f.Seek(max(0, info.Size()-tailBytes), io.SeekStart); err != nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}

// Explain wraps the end of a program with its last log lines, for people.
func (p *Program) Explain(err error) error {
	if err == nil {
		err = errors.New("it ended with exit status 0")
	}
	tail := p.Tail(20)
	if tail == "" {
		return fmt.Errorf("%s (pid %d) ended: %w; its log %s is empty", p.handle.Name, p.handle.PID, err,
			p.handle.Log)
	}
	return fmt.Errorf("%s (pid %d) ended: %w; the last lines of %s:\n%s", p.handle.Name, p.handle.PID, err,
		p.handle.Log, tail)
}
