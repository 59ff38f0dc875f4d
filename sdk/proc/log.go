package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
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
	f, err := openRegular(path, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, f: f, max: most}, nil
}

// openRegular opens a file of the folder that has a program's log. The program may have put a link, a pipe or a device
// in its place: those are refused, and nothing waits for the other end of a pipe.
func openRegular(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: remove it", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// rotate keeps the newest half of a log that has grown beyond its size in PATH.1. A failure (a full disk) leaves the
// log as it is: losing lines would be worse.
func (l *logFile) rotate() {
	info, err := l.f.Stat()
	if err != nil || info.Size() <= l.max {
		return
	}
	if l.copyEnd(l.path+".1", info.Size()) == nil {
		_ = l.f.Truncate(0)
	}
}

func (l *logFile) copyEnd(to string, size int64) (err error) {
	out, err := openRegular(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	most := min(size, l.max)
	_, err = io.CopyN(out, io.NewSectionReader(l.f, size-most, most), most) // the path may lead elsewhere by now
	return err
}

func (l *logFile) close() error { return l.f.Close() }

// tailBytes bounds how much of the end of a file Tail looks at.
const tailBytes = 64 << 10

// Tail returns the last lines of a file, at most n, without a final newline; empty when it cannot be read.
func Tail(path string, n int) string {
	f, err := openRegular(path, os.O_RDONLY)
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
