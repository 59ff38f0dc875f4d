// Package archive keeps copies of a trainer's checkpoints in a bucket, so that they outlive the machine: it uploads
// each one beside the training, and fetches the newest for an attempt on a machine that has none as new.
//
// In the folder of the address are, for each trainer and run, the files of its checkpoints and, written last, a
// manifest for each: ADDRESS/RUN/step_40/model.safetensors, ADDRESS/RUN/step_40.manifest.json. What has no manifest is
// not a checkpoint.
package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	// HeldFolder is the folder among the checkpoints with links to the files of those that are still to be uploaded: a
	// trainer may remove a checkpoint before that is done.
	HeldFolder = ".to-store"
	// FetchFolder is the one in which a fetched checkpoint is put together.
	FetchFolder = ".from-store"

	manifestEnd = ".manifest.json"
	format      = 1

	firstPause    = time.Second
	longestPause  = time.Minute
	startPatience = 2 * time.Minute
	startPause    = 10 * time.Second
	// lastPatience is how long the end of a run waits for a store that does not take the last checkpoint.
	lastPatience = 10 * time.Minute
	// sayAgain is how often a person is told that the store still is away.
	sayAgain = 10 * time.Minute
)

// Host is what the archive needs of the block's host.
type Host interface {
	Log(level, message string)
	Begin(a sdk.Activity) *sdk.Ongoing
}

// Manifest is what is written when all files of a checkpoint are in the store.
type Manifest struct {
	Format  int       `json:"format_version"`
	Run     string    `json:"run"`
	Address string    `json:"address"`
	Begun   string    `json:"begun,omitempty"` // when the trainer began from the beginning
	Name    string    `json:"name"`            // of its file or folder
	Step    int64     `json:"step"`
	Version int64     `json:"policy_version"`
	Written time.Time `json:"written"`
	Files   []File    `json:"files"`
	// Lineage is the run's lineage.json when the checkpoint was written; empty: this machine did not see it.
	Lineage json.RawMessage `json:"lineage,omitempty"`
}

// File is one file of a checkpoint.
type File struct {
	Path   string `json:"path"` // with slashes, from the folder of the checkpoints
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (m Manifest) bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Archive is the copies of one trainer of one run. It is safe for concurrent use.
type Archive struct {
	bucket   *objectstore.Bucket
	run      string
	block    string
	dir      string   // of the checkpoints
	lineages []string // folders, of which one has that of the run
	host     Host
	ctx      context.Context //nolint:containedctx // of the uploads; Close ends it
	cancel   context.CancelFunc
	done     chan struct{}

	knowing sync.Mutex
	begun   *string // when the trainer began from the beginning; nil: not known yet
	told    bool    // whether the store knows it

	mu      sync.Mutex
	pending *Manifest // the newest that is not uploaded; its Files are unknown yet
	sending string    // the name of the one that is on its way
	failing error     // of the last try
	wake    chan struct{}
	closed  bool
	had     map[string]bool // names of checkpoints that were on this machine
	damaged map[string]bool // names of those in the store that are not whole
	sent    string          // the name of the last that has been uploaded
	// patience is how long the start of an attempt waits for a store that does not answer.
	patience time.Duration
}

// Open makes the archive of a block's checkpoints. It asks nobody. Uploads that an earlier attempt has not finished are
// taken up. Close ends what it starts.
func Open(address string, block sdk.Block, host Host) (*Archive, error) {
	a, err := objectstore.Parse(address)
	if err != nil {
		return nil, err
	}
	bucket, err := objectstore.Open(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &Archive{bucket: bucket, run: block.RunID, block: block.Address, dir: block.CheckpointDir,
		lineages: []string{block.RunDir, block.Dir}, host: host,
		ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1), had: map[string]bool{},
		damaged: map[string]bool{}, patience: startPatience}
	if err := x.takeUp(); err != nil {
		cancel()
		return nil, err
	}
	go x.upload()
	return x, nil
}

// root is the folder of the run's checkpoints.
func (x *Archive) root() string { return url.PathEscape(x.block) + "/" + url.PathEscape(x.run) + "/" }

// Add has a checkpoint uploaded that is complete on disk. Of those that wait only the newest is.
func (x *Archive) Add(c sdk.CheckpointInfo) {
	m := Manifest{Format: format, Run: x.run, Address: x.block, Name: filepath.Base(c.Path), Step: c.Step,
		Version: c.Version, Written: time.Now().UTC(), Lineage: x.lineage()}
	if filepath.Dir(c.Path) != filepath.Clean(x.dir) {
		x.host.Log("error", fmt.Sprintf("checkpoint %s is not copied to %s: it is not in %s", c.Path, x.bucket, x.dir))
		return
	}
	if err := x.hold(m); err != nil {
		x.host.Log("error", fmt.Sprintf("checkpoint %s is not copied to %s: %v", c.Path, x.bucket, err))
		return
	}
	x.remember(m.Name)
	x.queue(m)
}

// lineage is what the engine has written of the run, without secrets.
func (x *Archive) lineage() json.RawMessage {
	for _, dir := range x.lineages {
		if text, err := regular.ReadFile(filepath.Join(dir, "lineage.json"), regular.Record); err == nil && json.Valid(text) {
			return text
		}
	}
	return nil
}

func (x *Archive) queue(m Manifest) {
	x.mu.Lock()
	if old := x.pending; old != nil && old.Name != m.Name && old.Name != x.sending {
		defer x.release(old.Name)
	}
	x.pending = &m
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Close waits until the last checkpoint is in the store, until ctx ends or the store has not taken it for some minutes.
// What could not be uploaded stays on this machine, and the next attempt takes it up; the error says so.
func (x *Archive) Close(ctx context.Context) error {
	x.mu.Lock()
	x.closed = true
	waiting := x.pending != nil
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
	if waiting {
		ongoing := x.host.Begin(sdk.Activity{What: "the last checkpoint to be in " + x.bucket.String(),
			Patience: lastPatience})
		defer ongoing.End()
	}
	limit := time.NewTimer(lastPatience)
	defer limit.Stop()
	defer x.cancel()
	for {
		select {
		case <-x.done:
			return nil
		case <-ctx.Done():
			return x.unfinished(context.Cause(ctx))
		case <-limit.C:
			x.mu.Lock()
			failing := x.failing
			x.mu.Unlock()
			if failing != nil { // an upload that goes on has a limit of its own
				return x.unfinished(nil)
			}
			limit.Reset(lastPatience)
		}
	}
}

func (x *Archive) unfinished(cause error) error {
	x.cancel()
	<-x.done
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pending == nil {
		return nil
	}
	return &sdk.Error{Summary: fmt.Sprintf("the checkpoint of step %d is not in %s; it is in %s, and is uploaded by the "+
		"next attempt", x.pending.Step, x.bucket, filepath.Join(x.dir, x.pending.Name)), Err: cmp.Or(x.failing, cause),
		Remedy: "recipe apply continues the run; health { stop_timeout } is the time that a stop has for this"}
}
