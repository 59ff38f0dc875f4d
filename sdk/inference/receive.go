package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// received are the weights that were sent to this machine, in folders named after their digests.
type received struct {
	dir string

	receiving sync.Mutex // held by the one transfer that goes on

	mu      sync.Mutex
	read    bool            // folders holds what an earlier attempt of the block has left
	folders []*delta.Folder // complete, the newest last
}

var _ gateway.Receiver = (*received)(nil)

// receivedKept is how many versions stay: the newest, and the one that may be being loaded.
const receivedKept = 2

// streamSuffix ends the name of a stream that has not been unpacked.
const streamSuffix = ".stream"

// Held implements gateway.Receiver.
func (r *received) Held(_ context.Context, t gateway.Transfer) (gateway.Held, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(); err != nil {
		return gateway.Held{}, err
	}
	held := gateway.Held{Complete: r.find(t.Digest) != nil}
	if n := len(r.folders); n > 0 {
		held.Base = r.folders[n-1].Digest
	}
	if info, err := os.Stat(r.stream(t)); err == nil && t.Stream != "" {
		held.Received = info.Size()
	}
	return held, nil
}

// Receive implements gateway.Receiver.
func (r *received) Receive(ctx context.Context, t gateway.Transfer, body io.Reader) error {
	r.receiving.Lock()
	defer r.receiving.Unlock()
	if held, err := r.Held(ctx, t); err != nil || held.Complete {
		return err
	}
	if t.Stream == "" || !filepath.IsLocal(t.Stream) || filepath.Base(t.Stream) != t.Stream {
		return fmt.Errorf("%q is not the name of a stream", t.Stream)
	}
	if err := r.append(t, body); err != nil {
		return fmt.Errorf("receive weights: %w", err)
	}
	folder, err := r.unpack(t)
	if err != nil {
		return errors.Join(err, os.Remove(r.stream(t))) // the next try receives it anew
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.folders = append(r.folders, folder)
	r.prune()
	return nil
}

func (r *received) stream(t gateway.Transfer) string {
	return filepath.Join(r.dir, t.Stream+streamSuffix)
}

// append writes what arrives to the stream's file. What has arrived before an error stays.
func (r *received) append(t gateway.Transfer, body io.Reader) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(r.stream(t), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != t.From {
		return fmt.Errorf("%d bytes of the stream have arrived, and it continues at byte %d", info.Size(), t.From)
	}
	n, err := io.Copy(file, io.LimitReader(body, t.Bytes-t.From+1))
	switch {
	case err != nil:
		return err
	case t.From+n != t.Bytes:
		return fmt.Errorf("%w: %d of %d bytes of the stream are here", io.ErrUnexpectedEOF, t.From+n, t.Bytes)
	}
	return file.Close()
}

// unpack makes the folder of weights from a complete stream.
func (r *received) unpack(t gateway.Transfer) (*delta.Folder, error) {
	file, err := os.Open(r.stream(t))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	r.mu.Lock()
	var base *delta.Folder
	if n := len(r.folders); n > 0 {
		base = r.folders[n-1]
	}
	r.mu.Unlock()
	folder, err := delta.Apply(file, base, filepath.Join(r.dir, name(t.Digest)))
	if err == nil && folder.Digest != t.Digest {
		return nil, errors.Join(fmt.Errorf("the stream brings weights %.12s, expected %.12s", folder.Digest, t.Digest),
			os.RemoveAll(folder.Path))
	}
	return folder, err
}

// name is that of a folder of weights.
func name(digest string) string { return "weights-" + fmt.Sprintf("%.32s", digest) }

// load finds what an earlier attempt of the block has received.
func (r *received) load() error {
	if r.read {
		return nil
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	type found struct {
		path string
		time int64
	}
	var all []found
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), "weights-") && !strings.HasSuffix(e.Name(), ".tmp") {
			all = append(all, found{filepath.Join(r.dir, e.Name()), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return int(min(max(a.time-b.time, -1), 1)) })
	for _, f := range all[max(0, len(all)-receivedKept):] {
		folder, err := delta.Read(f.path)
		if err != nil {
			return err
		}
		if filepath.Base(f.path) == name(folder.Digest) { // else it was changed, or lost its end in a crash
			r.folders = append(r.folders, folder)
		}
	}
	r.read = true
	return nil
}

func (r *received) find(digest string) *delta.Folder {
	for _, f := range r.folders {
		if f.Digest == digest {
			return f
		}
	}
	return nil
}

// prune removes older weights, and streams.
func (r *received) prune() {
	r.folders = r.folders[max(0, len(r.folders)-receivedKept):]
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		path := filepath.Join(r.dir, e.Name())
		if !slices.ContainsFunc(r.folders, func(f *delta.Folder) bool { return f.Path == path }) {
			_ = os.RemoveAll(path) // what cannot be removed stays, and is tried again next time
		}
	}
}

// local names weights that were sent here by their path, for an engine that loads files.
func (r *received) local(w sdk.Weights) (sdk.Weights, error) {
	if w.Transport != transport.Delta {
		return w, nil
	}
	var h delta.Handles
	if err := json.Unmarshal([]byte(w.Handles), &h); err != nil || !filepath.IsLocal(filepath.FromSlash(h.Path)) {
		return w, fmt.Errorf("policy version %d: its handles cannot be read: %w", w.Version, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(); err != nil {
		return w, err
	}
	folder := r.find(h.Digest)
	if folder == nil {
		return w, fmt.Errorf("policy version %d has not been sent to this machine", w.Version)
	}
	w.Path, w.Transport, w.Handles = filepath.Join(folder.Path, filepath.FromSlash(h.Path)), transport.Reload, ""
	return w, nil
}
