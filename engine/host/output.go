package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// The files in a block's directory that its plugin process writes to.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// OutputLine is one line printed by a plugin process.
type OutputLine struct {
	Stream string // Stdout or Stderr
	Text   string
}

// Output reads the output of the plugin process of a block's directory as it grows. The position is stored beside the
// files, so that a later engine continues where an earlier one ended.
type Output struct {
	dir  string
	read map[string]int64 // of each file, how many bytes
}

const (
	outputRecord = "output.json"

	maxOutputRecord = 1 << 10
	maxOutputLine   = 8 << 10
	maxOutputRead   = 256 << 10 // of one file at one call

	// A process that prints without end does not fill the disk, and its end does not wait until all lines are read.
	maxOutputFile   = 64 << 20
	maxOutputUnread = 8 << 20
)

// NewOutput reads the output of the next process in the directory, from its first line.
func NewOutput(dir string) *Output {
	o := outputFrom(dir)
	o.save()
	return o
}

func outputFrom(dir string) *Output {
	o := &Output{dir: dir, read: map[string]int64{Stdout: 0, Stderr: 0}} // stdout is truncated for each process
	if info, err := os.Stat(filepath.Join(dir, Stderr)); err == nil && info.Size() <= maxStderr {
		o.read[Stderr] = info.Size()
	}
	return o
}

// ResumeOutput continues where an earlier engine ended.
func ResumeOutput(dir string) *Output {
	o := outputFrom(dir)
	if data, err := private.ReadFile(filepath.Join(dir, outputRecord), maxOutputRecord); err == nil {
		_ = json.Unmarshal(data, &o.read) // an unreadable record counts as none
	}
	return o
}

// Next calls each for every line since the last call. An incomplete line is left for the next call, unless the process
// has ended. It returns whether there was any.
func (o *Output) Next(ended bool, each func(OutputLine)) bool {
	found := false
	for _, stream := range []string{Stdout, Stderr} {
		found = o.stream(stream, ended, each) || found
	}
	if found {
		o.save()
	}
	return found
}

// save stores the position; where that fails, a later engine reports lines twice.
func (o *Output) save() {
	if data, err := json.Marshal(o.read); err == nil {
		f, err := private.OpenFile(filepath.Join(o.dir, outputRecord), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
		if err != nil {
			return
		}
		_, _ = f.Write(data)
		_ = f.Close()
	}
}

func (o *Output) stream(name string, ended bool, each func(OutputLine)) bool {
	path := filepath.Join(o.dir, name)
	info, err := os.Stat(path)
	if err != nil || info.Size() == o.read[name] {
		return false
	}
	if info.Size() < o.read[name] {
		o.read[name] = 0 // renamed or truncated
	}
	if unread := info.Size() - o.read[name]; info.Size() > maxOutputFile || ended && unread > maxOutputUnread {
		text := fmt.Sprintf("%d MiB of its output are left out", unread>>20)
		o.read[name] = info.Size()
		if ended { // of what is left of it, the end is shown as the reason
			o.read[name] -= maxOutputRead
		} else if err := o.shorten(name, info.Size()); err != nil {
			text += fmt.Sprintf(", and the file cannot be shortened: %v", err)
		}
		each(OutputLine{name, text})
		return true
	}
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(o.read[name], io.SeekStart); err != nil {
		return false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxOutputRead))
	if err != nil {
		return false
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if ended || (whole == 0 && len(data) == maxOutputRead) {
		whole = len(data)
	}
	o.read[name] += int64(whole)
	for _, line := range strings.Split(strings.TrimSuffix(string(data[:whole]), "\n"), "\n") {
		if line = strings.TrimRight(line, "\r "); line == "" || (name == Stdout && handshakeLine.MatchString(line)) {
			continue
		}
		if len(line) > maxOutputLine {
			line = strings.ToValidUTF8(line[:maxOutputLine], "") + " …"
		}
		each(OutputLine{name, line})
	}
	return whole > 0
}

// shorten empties a file, and keeps its end beside it. The process appends to it, so it goes on at the beginning. Lines
// that it prints meanwhile are lost.
func (o *Output) shorten(name string, size int64) (err error) {
	path := filepath.Join(o.dir, name)
	f, err := private.OpenFile(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if !private.OneName(path) { // it is a file of something else, too
		return fmt.Errorf("%s has a second name", path)
	}
	kept, err := private.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(kept, io.NewSectionReader(f, size-maxOutputUnread, maxOutputUnread))
	if err = errors.Join(err, kept.Close()); err != nil {
		return err
	}
	o.read[name] = 0
	return f.Truncate(0)
}

// floodsLookedAt is how often the output of a process is looked at that has not completed its handshake.
const floodsLookedAt = 50 * time.Millisecond

// endFloods ends a process that prints without end before its handshake, when no Output reads it yet. printed is what
// stderr had before. What it returns ends this, and returns why a process was ended; empty: none was.
func endFloods(dir string, printed int64, process func() Process) func() string {
	stop, done := make(chan struct{}), make(chan string, 1)
	go func() {
		look := time.NewTicker(floodsLookedAt)
		defer look.Stop()
		for {
			select {
			case <-stop:
				done <- ""
				return
			case <-look.C:
			}
			for name, before := range map[string]int64{Stdout: 0, Stderr: printed} {
				info, err := os.Lstat(filepath.Join(dir, name))
				p := process()
				if err != nil || p == nil || info.Size()-before <= maxOutputFile {
					continue
				}
				_ = p.Kill(context.Background())
				select {
				case <-p.Exited():
				case <-stop:
				}
				o := outputFrom(dir)
				if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
					_ = o.shorten(name, info.Size())
				}
				done <- fmt.Sprintf("it printed more than %d MiB before its handshake, and was ended", maxOutputFile>>20)
				return
			}
		}
	}()
	return func() string {
		close(stop)
		return <-done
	}
}

// handshakeLine is the line with the address at which a plugin listens.
var handshakeLine = lazyregexp.New(`\d+\|\d+\|(unix|tcp)\|`)

// LastLines returns the lines that best explain why the process in a block's directory ended, at most n: the start of a
// Go panic, before its stack, else the last lines. They are those of stderr, or of stdout when stderr is empty.
func LastLines(dir string, n int) []string { return lastLines(dir, 0, n) }

// lastLines is LastLines for stderr from a position on.
func lastLines(dir string, from int64, n int) []string {
	lines := fileLines(filepath.Join(dir, Stderr), from)
	if len(lines) == 0 {
		lines = stdoutLines(dir)
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "panic: ") || strings.HasPrefix(lines[i], "fatal error: ") {
			if cut := len(lines) - i - n; cut > 0 {
				return append(lines[i:i+n:i+n], fmt.Sprintf("… %d more lines of the stack", cut))
			}
			return lines[i:]
		}
	}
	return lines[max(0, len(lines)-n):]
}

// withoutHandshake is lastLines of a process that made no handshake: after what is on stdout, where that would be, if
// both streams have something. Stderr alone may say no more than that the process was ended: a shell writes "Killed".
func withoutHandshake(dir string, from int64, n int) []string {
	lines, out := lastLines(dir, from, n), stdoutLines(dir)
	if len(out) == 0 || len(fileLines(filepath.Join(dir, Stderr), from)) == 0 {
		return lines
	}
	return append(out[max(0, len(out)-n):], lines...)
}

func stdoutLines(dir string) []string {
	return slices.DeleteFunc(fileLines(filepath.Join(dir, Stdout), 0), handshakeLine.MatchString)
}

// lastBytes bounds how much of a file is read for its last lines.
const lastBytes = 256 << 10

func fileLines(path string, from int64) (lines []string) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil {
		if info.Size() < from {
			from = 0 // renamed, so all of it is new
		}
		from = max(from, info.Size()-lastBytes)
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil
	}
	scan := bufio.NewScanner(io.LimitReader(f, lastBytes))
	scan.Buffer(nil, lastBytes+1)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
