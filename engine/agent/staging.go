package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/internal/delta"
)

const (
	// stagingIdle ends a transfer in which nothing moves.
	stagingIdle = time.Minute
	// keepFolders is how long to keep the folder of a job whose results were never collected.
	keepFolders = 7 * 24 * time.Hour
)

// The folders inside the folder of a job: what the recipe's folder and the run's directory are on the engine's machine.
const (
	RecipeFolder = "recipe"
	RunFolder    = "run"
)

// File is a file that an engine stages. Its path is relative to the job's folder.
type File struct {
	Path       string    `json:"path"`
	Digest     string    `json:"digest"` // SHA-256, hexadecimal
	Size       int64     `json:"size"`
	Modified   time.Time `json:"modified"` // kept, so that the engine sees later that it has not changed
	Executable bool      `json:"executable,omitempty"`
}

// Entry is a file in the job's folder.
type Entry struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Inode    uint64    `json:"inode"`
}

// staging is the folder of a job on a machine that has no file system in common with the engine's.
type staging struct {
	dir     string
	root    *os.Root
	store   store
	program string // this program, in the job's folder: the store may remove its own
	log     io.Writer
	logFile *os.File
	unlock  func()

	receiving sync.Mutex // one file at a time: after a cut an earlier transfer of the same one may not have ended yet
	taken     bool       // the engine has told the agent to end, so it has what it wanted
}

// openStaging makes the folder of a job below scratch.
func openStaging(scratch string, b Bootstrap, log io.Writer) (s *staging, err error) {
	machine, err := os.Hostname() // scratch may be shared by machines, whose locks may not be
	if err != nil {
		return nil, err
	}
	s = &staging{store: store{filepath.Join(scratch, "blobs", "sha256")}}
	jobs := filepath.Join(scratch, "jobs", machine)
	s.dir = filepath.Join(jobs, strings.TrimSuffix(NameOf(b.Job, b.Node), ".agent"))
	for _, dir := range []string{scratch, s.store.dir, jobs, s.dir, filepath.Join(s.dir, "incoming"),
		filepath.Join(s.dir, "bin")} {
		if err := private.Dir(dir); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if s.unlock, err = private.Lock(ctx, s.dir+".lock", "another agent of the same job"); err != nil {
		return nil, err
	}
	if err := s.fill(b, log); err != nil {
		return nil, errors.Join(err, s.close())
	}
	removeOld(jobs)
	return s, s.store.trim(storeLimit)
}

func (s *staging) fill(b Bootstrap, log io.Writer) (err error) {
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return err
	}
	block := filepath.Join(RunFolder, filepath.FromSlash(b.Folder))
	if err := s.root.MkdirAll(block, 0o700); err != nil {
		return err
	}
	s.logFile, err = s.root.OpenFile(filepath.Join(block, fmt.Sprintf("agent-%d.log", b.Job.Attempt)),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.log = io.MultiWriter(s.logFile, log)
	own, err := os.Executable()
	if err != nil {
		return err
	}
	s.program = filepath.Join(s.dir, "bin", "recipe")
	_ = os.Remove(s.program)
	if os.Link(own, s.program) == nil {
		return nil
	}
	return copyProgram(own, s.program)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// removeOld removes the folders of jobs of this machine that have ended long ago.
func removeOld(jobs string) {
	list, _ := os.ReadDir(jobs)
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(info.ModTime()) < keepFolders {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // not waited for: who holds it lives
		path := filepath.Join(jobs, e.Name())
		if unlock, err := private.Lock(ctx, path+".lock", "its agent"); err == nil {
			_ = os.RemoveAll(path)
			_ = os.Remove(path + ".lock")
			unlock()
		}
	}
}

// close removes the folder, unless the engine may not have all that is in it.
func (s *staging) close() error {
	var errs []error
	if s.logFile != nil {
		errs = append(errs, s.logFile.Close())
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
	}
	if s.taken {
		errs = append(errs, os.RemoveAll(s.dir), os.Remove(s.dir+".lock"))
	}
	s.unlock()
	return errors.Join(errs...)
}

// missing are the digests of the files that the store does not have.
func (s *staging) missing(files []File) []string {
	var out []string
	seen := map[string]bool{}
	for _, f := range files {
		if !seen[f.Digest] && !s.store.has(f.Digest, f.Size) {
			out = append(out, f.Digest)
		}
		seen[f.Digest] = true
	}
	return out
}

// put receives one file into the store. The first response says from which byte on it is to be sent.
func (s *staging) put(f File) (out Response, then func(net.Conn), err error) {
	s.receiving.Lock()
	in, err := receive(filepath.Join(s.dir, "incoming"), f.Digest, f.Size)
	if err == nil {
		err = room(s.dir, f.Size-in.at)
	}
	if err != nil {
		s.receiving.Unlock()
		return out, nil, err
	}
	return Response{Offset: in.at}, func(c net.Conn) {
		defer s.receiving.Unlock()
		var out Response
		if err := s.store.take(in, idleReader{c}); err != nil {
			out.Error = err.Error()
		}
		_ = writeLine(c, out)
	}, nil
}

// room reports whether that many bytes fit on the file system of a folder.
func room(dir string, bytes int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil //nolint:nilerr // it is seen when they are written
	}
	if free := int64(fs.Bavail) * int64(fs.Bsize); free < bytes {
		return fmt.Errorf("%s has room for %d MiB, and a file of %d MiB is to be staged there; the executor's scratch "+
			"names another folder", dir, free>>20, bytes>>20)
	}
	return nil
}

// idleReader reads from a connection until nothing comes for stagingIdle.
type idleReader struct{ net.Conn }

func (r idleReader) Read(b []byte) (int, error) {
	_ = r.SetReadDeadline(time.Now().Add(stagingIdle))
	return r.Conn.Read(b)
}

// idleWriter writes to a connection until nothing is taken for stagingIdle.
type idleWriter struct{ net.Conn }

func (w idleWriter) Write(b []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(stagingIdle))
	return w.Conn.Write(b)
}

// place copies files of the store into the job's folder, and makes further folders.
func (s *staging) place(files []File, folders []string) error {
	for _, path := range folders {
		if err := s.root.MkdirAll(filepath.FromSlash(path), 0o700); err != nil {
			return fmt.Errorf("make %s in the job's folder: %w", path, err)
		}
	}
	for _, f := range files {
		f.Path = filepath.FromSlash(f.Path)
		if err := s.store.copyTo(s.root, f); err != nil {
			return err
		}
	}
	return nil
}

// list lists the files below the job's copy of the run's directory.
func (s *staging) list() ([]Entry, error) {
	var out []Entry
	top := os.DirFS(s.dir)
	err := fs.WalkDir(top, RunFolder, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() && ofTheMachine(path):
			return fs.SkipDir
		case info.Mode().IsRegular():
			e := Entry{Path: path, Size: info.Size(), Modified: info.ModTime()}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				e.Inode = st.Ino
			}
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the files of the job: %w", err)
	}
	return out, nil
}

// ofTheMachine says whether a folder of a block holds copies of weights or checkpoints, which are large and of no use
// elsewhere.
func ofTheMachine(path string) bool {
	parts := strings.Split(path, "/") // RUN/blocks/ADDRESS/FOLDER, RUN/checkpoints/ADDRESS/FOLDER
	return len(parts) == 4 && slices.Contains([]string{delta.PublishedFolder, delta.ReceivedFolder, archive.HeldFolder,
		archive.FetchFolder}, parts[3])
}

// get sends a file of the run's directory from an offset to its present end.
func (s *staging) get(path string, offset int64) (out Response, then func(net.Conn), err error) {
	if inside, err := filepath.Rel(RunFolder, filepath.FromSlash(path)); err != nil || !filepath.IsLocal(inside) {
		return out, nil, fmt.Errorf("%q is no file of the run's directory", path)
	}
	f, err := s.root.Open(filepath.FromSlash(path))
	if errors.Is(err, fs.ErrNotExist) { // removed since it was listed
		return Response{Missing: []string{path}}, nil, nil
	}
	if err != nil {
		return out, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return out, nil, errors.Join(err, f.Close())
	}
	out.Size = max(info.Size()-offset, 0)
	return out, func(c net.Conn) {
		defer func() { _ = f.Close() }()
		_, _ = io.Copy(idleWriter{c}, io.LimitReader(f, out.Size))
	}, nil
}
