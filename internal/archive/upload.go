package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// unfinished are names of files that somebody is writing into a finished checkpoint, as the engine does with the
// lineage: they are renamed when they are whole.
var unfinished = lazyregexp.New(`^\..*\d{6,}$`)

// hold links the files of a checkpoint, so that they stay until they are uploaded.
func (x *Archive) hold(m Manifest) error {
	held := filepath.Join(x.dir, HeldFolder)
	part := filepath.Join(held, ".part-"+m.Name)
	_ = os.RemoveAll(part)
	err := filepath.WalkDir(filepath.Join(x.dir, m.Name), func(path string, d fs.DirEntry, err error) error {
		if unfinished.MatchString(filepath.Base(path)) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(x.dir, path)
		if err != nil {
			return err
		}
		to := filepath.Join(part, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case d.Type().IsRegular():
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			if os.Link(path, to) != nil { // a file system without links
				return duplicate(path, to)
			}
			return nil
		}
		return fmt.Errorf("%s is neither a file nor a folder", path)
	})
	text, e := json.Marshal(m)
	if err == nil {
		err = e
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(part, "checkpoint.json"), text, 0o600)
	}
	if err == nil {
		_ = os.RemoveAll(filepath.Join(held, m.Name)) // of an upload of the same step that was not finished
		err = os.Rename(part, filepath.Join(held, m.Name))
	}
	if err != nil {
		_ = os.RemoveAll(part)
		return fmt.Errorf("hold its files: %w", err)
	}
	return nil
}

// duplicate copies a file.
func duplicate(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // a checkpoint's
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside it
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// hadFile is the name in HeldFolder of the list of checkpoints that attempts on this machine have had.
const hadFile = "had.json"

// remember writes down that a checkpoint was here.
func (x *Archive) remember(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.had[name] = true
	x.writeHad()
}

// forget is remember's contrary.
func (x *Archive) forget(names map[string]bool) {
	if len(names) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range names {
		delete(x.had, name)
	}
	x.writeHad()
}

// writeHad is called with the lock held.
func (x *Archive) writeHad() {
	text, err := json.Marshal(x.had)
	held := filepath.Join(x.dir, HeldFolder)
	if err == nil {
		err = os.MkdirAll(held, 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(filepath.Join(held, hadFile), text, 0o600)
	}
	if err != nil {
		x.host.Log("warn", fmt.Sprintf("what was here is not written down, so it may stay in %s: %v", x.bucket, err))
	}
}

// release removes the links of a checkpoint.
func (x *Archive) release(name string) {
	if err := os.RemoveAll(filepath.Join(x.dir, HeldFolder, name)); err != nil {
		x.host.Log("warn", fmt.Sprintf("files that are in %s could not be let go: %v", x.bucket, err))
	}
}

// takeUp queues the newest checkpoint that an earlier attempt has not uploaded.
func (x *Archive) takeUp() error {
	held := filepath.Join(x.dir, HeldFolder)
	entries, err := os.ReadDir(held)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for checkpoints to be uploaded: %w", err)
	}
	if text, err := regular.ReadFile(filepath.Join(held, hadFile), regular.Record); err == nil {
		_ = json.Unmarshal(text, &x.had) // without it old checkpoints stay in the store
	}
	var newest *Manifest
	for _, e := range entries {
		if e.Name() == hadFile || e.Name() == begunFile {
			continue
		}
		var m Manifest
		text, err := regular.ReadFile(filepath.Join(held, e.Name(), "checkpoint.json"), regular.Record)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || m.Run != x.run || m.Name != e.Name() || newest != nil && m.Step < newest.Step {
			x.release(e.Name())
			continue
		}
		if newest != nil {
			x.release(newest.Name)
		}
		newest = &m
	}
	if newest != nil {
		x.queue(*newest)
	}
	return nil
}

// upload uploads what is queued, until the archive is closed and nothing is.
func (x *Archive) upload() {
	defer close(x.done)
	pause, said := firstPause, time.Time{}
	for next := x.next(); next != nil; next = x.next() {
		began := time.Now()
		sent, err := x.send(x.ctx, *next)
		if x.ctx.Err() != nil {
			return
		}
		x.settle(next, err)
		if err == nil {
			x.archived(next.Step)
			if !said.IsZero() {
				x.host.Log("info", x.bucket.String()+" takes checkpoints again")
			}
			pause, said = firstPause, time.Time{}
			x.host.Log("info", fmt.Sprintf("checkpoint of step %d is in %s: %.1f MB in %.1f s", next.Step, x.bucket,
				float64(sent)/1e6, time.Since(began).Seconds()))
			x.prune(x.ctx)
			continue
		}
		if time.Since(said) > sayAgain {
			said = time.Now()
			x.host.Log("warn", fmt.Sprintf("the checkpoint of step %d is not in %s yet, and is tried again; training goes "+
				"on, and checkpoints stay here: %s", next.Step, x.bucket, sdk.Message(err)))
		}
		select {
		case <-x.wake: // a newer one, or the end
		case <-time.After(pause):
		case <-x.ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// next waits for what is to be uploaded; nil: nothing will be.
func (x *Archive) next() *Manifest {
	for {
		x.mu.Lock()
		next, closed := x.pending, x.closed
		if next != nil {
			x.sending = next.Name
		}
		x.mu.Unlock()
		if next != nil || closed {
			return next
		}
		select {
		case <-x.wake:
		case <-x.ctx.Done():
			return nil
		}
	}
}

// settle notes how an upload has ended. What is in the store, or is followed by a newer one, is let go.
func (x *Archive) settle(m *Manifest, err error) {
	x.mu.Lock()
	x.failing, x.sending = err, ""
	if err == nil {
		x.sent = m.Name
		delete(x.damaged, m.Name)
	}
	followed := x.pending != m
	again := followed && x.pending.Name == m.Name // the same step once more, held in its place
	if err == nil && !followed {
		x.pending = nil
	}
	x.mu.Unlock()
	if (err == nil || followed) && !again {
		x.release(m.Name)
	}
}

// send uploads one checkpoint, and returns its bytes. What the store has of the same step goes first: a manifest must
// never stand over files of two uploads.
func (x *Archive) send(ctx context.Context, m Manifest) (int64, error) {
	var err error
	if m.Begun, err = x.know(ctx); err != nil {
		return 0, err
	}
	if err := x.remove(ctx, m.Name); err != nil {
		return 0, err
	}
	held := filepath.Join(x.dir, HeldFolder, m.Name)
	err = filepath.WalkDir(filepath.Join(held, m.Name), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(held, path)
		if err != nil {
			return err
		}
		f := File{Path: filepath.ToSlash(rel)}
		if f.Size, f.SHA256, err = digest(ctx, path); err != nil {
			return err
		}
		m.Files = append(m.Files, f)
		return x.bucket.PutFile(ctx, x.root()+f.Path, path)
	})
	if err != nil {
		return 0, err
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return 0, fmt.Errorf("write the manifest of step %d: %w", m.Step, err)
	}
	return m.bytes(), x.bucket.Put(ctx, x.root()+m.Name+manifestEnd, text)
}

func digest(ctx context.Context, path string) (int64, string, error) {
	f, err := os.Open(path) //nolint:gosec // a checkpoint's
	if err != nil {
		return 0, "", fmt.Errorf("read a checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, reader{ctx, f})
	if err != nil {
		return 0, "", fmt.Errorf("read a checkpoint: %w", err)
	}
	return n, hex.EncodeToString(sum.Sum(nil)), nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // of one call
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
