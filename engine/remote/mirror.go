package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/disk"
)

// What a block with staged files writes into its folders comes back here while it runs: its log, samples, checkpoints.
// Files that grow are continued; others are replaced when they have come whole.

const (
	// pullEvery is how often that is done, and lastPull how long it may take when the job ends.
	pullEvery = time.Second
	lastPull  = 10 * time.Minute
)

// Staged reports whether the job's machine has copies of files instead of the files.
func (j *Job) Staged() bool { return j.record.RecipeDir != "" }

// mirror brings the block's files here until the job is given back.
func (j *Job) mirror() {
	ctx, cancel := context.WithCancel(j.hub.ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.ended:
			return
		case <-time.After(pullEvery):
			_ = j.pull(ctx) // what is missing comes later
		}
	}
}

// endMirror brings the rest here. The agent removes its copies when it is told to end after that; when it is not told,
// they stay for some days.
func (j *Job) endMirror(ctx context.Context) error {
	j.mu.Lock()
	select {
	case <-j.ended:
	default:
		close(j.ended)
	}
	j.mu.Unlock()
	if client, over, _ := j.peer.state(); client == nil || over != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPull)
	defer cancel()
	err := j.Pull(ctx)
	if errors.Is(err, host.ErrGone) {
		return nil // its agent has ended, which waits until the last files are here
	}
	return err
}

// Pull brings here what the block has written so far.
func (j *Job) Pull(ctx context.Context) error {
	if err := j.pull(ctx); err != nil {
		return fmt.Errorf("fetch what %s has written on %s: %w", j.record.Handle.Block, j.peer.host(), err)
	}
	return nil
}

func (j *Job) pull(ctx context.Context) error {
	j.pulls.Lock()
	defer j.pulls.Unlock()
	var list []agent.Entry
	err := j.peer.do(ctx, func(c *agent.Client) (err error) {
		list, err = c.List(ctx)
		return err
	})
	if err != nil {
		return err
	}
	now := make(map[string]bool, len(list))
	var errs []error
	for _, e := range list {
		now[e.Path] = true
		if j.pulled[e.Path] == e || belongsToEngine(filepath.Base(e.Path)) {
			continue
		}
		if err := j.fetch(ctx, e); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			errs = append(errs, fmt.Errorf("%s: %w", e.Path, err))
			continue
		}
		j.pulled[e.Path] = e
	}
	for path := range j.pulled {
		if !now[path] {
			errs = append(errs, j.removed(path))
		}
	}
	return errors.Join(errs...)
}

// here is the path on this machine of a file of the job's folder. Only the block's own folders are written to, whatever
// the agent names.
func (j *Job) here(path string) (string, error) {
	parts := strings.Split(path, "/")
	if len(parts) < 4 || parts[0] != agent.RunFolder || parts[2] != filepath.Base(j.dir) || !fs.ValidPath(path) {
		return "", fmt.Errorf("it is in no folder of %s", j.record.Handle.Block)
	}
	return filepath.Join(j.hub.run, filepath.FromSlash(strings.Join(parts[1:], "/"))), nil
}

// Own reports whether a path of this machine is in one of the block's folders of the run's directory.
func (j *Job) Own(path string) bool {
	rel, err := filepath.Rel(j.hub.run, path)
	parts := strings.Split(rel, string(filepath.Separator))
	return err == nil && filepath.IsLocal(rel) && len(parts) > 2 && parts[1] == filepath.Base(j.dir)
}

// fetch brings one file here.
func (j *Job) fetch(ctx context.Context, e agent.Entry) error {
	path, err := j.here(e.Path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.Size() == e.Size && info.ModTime().Equal(e.Modified) {
		return nil // it was staged, or an earlier engine has fetched it
	}
	if old := j.pulled[e.Path]; old.Inode == e.Inode && old.Size > 0 && old.Size < e.Size && private.OneName(path) {
		return j.extend(ctx, e, path)
	}
	part := path + ".part"
	to, err := private.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	err = j.copyFrom(ctx, e.Path, 0, to)
	if err = errors.Join(err, to.Close(), os.Chtimes(part, e.Modified, e.Modified)); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// extend continues a file of which the beginning is here, and which has no other name: a program of a plugin that was
// staged, or a checkpoint that another run has, too, would change with it.
func (j *Job) extend(ctx context.Context, e agent.Entry, path string) error {
	to, err := private.OpenFile(path, os.O_CREATE|os.O_WRONLY)
	if err != nil {
		return err
	}
	at, err := to.Seek(j.pulled[e.Path].Size, io.SeekStart)
	if err == nil {
		err = to.Truncate(at)
	}
	if err == nil {
		err = j.copyFrom(ctx, e.Path, at, to)
	}
	return errors.Join(err, to.Close(), os.Chtimes(path, e.Modified, e.Modified))
}

// copyFrom writes a file of the job's machine from an offset on, across cuts of the connection.
func (j *Job) copyFrom(ctx context.Context, path string, offset int64, to io.Writer) error {
	to = &sparing{to: to, dir: j.hub.run, free: disk.Free}
	return j.peer.do(ctx, func(c *agent.Client) error {
		n, err := c.Get(ctx, path, offset, to)
		offset += n
		return err
	})
}

const (
	// keepFree is what fetched files leave of the disk: the run's record, its log and the files of other blocks need some.
	keepFree = 256 << 20
	// askEvery is how much is written before the disk is asked again.
	askEvery = 64 << 20
)

// sparing writes while the disk has room. The machine of a job, which may be another's by now, says how large its files
// are.
type sparing struct {
	to   io.Writer
	dir  string
	free func(dir string) (uint64, error)
	left int64
}

func (s *sparing) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		s.left = askEvery
		if free, err := s.free(s.dir); err == nil { // else the write itself fails when there is no room
			if free < keepFree+uint64(len(p)) {
				return 0, disk.NoRoom(fmt.Sprintf("%s are free in %s, and %s are kept free: remove what is not needed",
					disk.Size(free), s.dir, disk.Size(keepFree)))
			}
			s.left = min(s.left, int64(min(free-keepFree, askEvery))) //nolint:gosec // at most askEvery
		}
	}
	n, err := s.to.Write(p)
	s.left -= int64(n)
	return n, err
}

// removed removes a file that the block has removed, such as one of an old checkpoint, and folders that are empty then.
func (j *Job) removed(path string) error {
	delete(j.pulled, path)
	here, err := j.here(path)
	if err != nil {
		return err
	}
	if err := os.Remove(here); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kind := filepath.Join(j.hub.run, strings.Split(path, "/")[1])
	for dir := filepath.Dir(here); filepath.Dir(dir) != kind && dir != kind; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break
		}
	}
	return nil
}

// folders are where a block of this machine has the run's and the recipe's files, and where one in the job has them;
// false: at the same paths.
func (j *Job) folders() (here, there [2]string, staged bool) {
	j.peer.mu.Lock()
	top := j.peer.hello.Folder
	j.peer.mu.Unlock()
	if !j.Staged() || top == "" {
		return here, there, false
	}
	here, there = pairs(j.hub.run, j.record.RecipeDir, top)
	return here, there, true
}

// pairs are the folders here and in that of a job. The run's directory is in the recipe's folder, so it comes first.
func pairs(run, recipe, top string) (here, there [2]string) {
	return [2]string{run, recipe},
		[2]string{filepath.Join(top, agent.RunFolder), filepath.Join(top, agent.RecipeFolder)}
}

// Here is Job.Here for the job that is recorded in a block's directory.
func Here(dir string) func(string) string {
	r, err := readRecord(dir)
	dir, absErr := filepath.Abs(dir)
	if err != nil || absErr != nil || r.Folder == "" || r.RecipeDir == "" {
		return func(text string) string { return text }
	}
	here, there := pairs(filepath.Dir(filepath.Dir(dir)), r.RecipeDir, r.Folder)
	return func(text string) string { return moved(text, there, here) }
}

// There is a path on the machine of the job for one of this machine. Other texts stay as they are.
func (j *Job) There(text string) string {
	here, there, staged := j.folders()
	if !staged {
		return text
	}
	if own, err := os.Executable(); err == nil && text == own {
		j.peer.mu.Lock()
		defer j.peer.mu.Unlock()
		return j.peer.hello.Program
	}
	return moved(text, here, there)
}

// Here is the opposite of There.
func (j *Job) Here(text string) string {
	here, there, staged := j.folders()
	if !staged {
		return text
	}
	return moved(text, there, here)
}

func moved(text string, from, to [2]string) string {
	for i := range from {
		if rest, ok := strings.CutPrefix(text, from[i]); ok && (rest == "" || rest[0] == '/') {
			return to[i] + rest
		}
	}
	return text
}

// FromPlugin is the path of a file of the recipe's folder from the folder "plugin" of a block's folder, on a machine to
// which both are staged; empty: it is not in the recipe's folder.
func FromPlugin(recipeDir, path string) string {
	rel, err := filepath.Rel(recipeDir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.Join("..", "..", "..", "..", agent.RecipeFolder, rel)
}
