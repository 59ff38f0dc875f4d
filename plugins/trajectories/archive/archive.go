// Package archive copies the record of samples to a bucket while it is written, so that what a run has sampled outlives
// its machine.
//
// In the folder of the address is, for each block, run and folder of a record, ADDRESS/RUN/samples-NAME/ with the files
// of the record as they are here, and manifest.json, written after them. A file of bodies is copied before the index
// that names them, so what is in the bucket can be read at any time.
package archive

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	// stateFile is beside the files of the record: what is in the bucket, and where.
	stateFile    = ".archive.json"
	manifestFile = "manifest.json"
	format       = 1
)

// Pace is how often the archive does what.
type Pace struct {
	Look       time.Duration // for files that are complete
	Unfinished time.Duration // between two copies of the files that are being written
	First      time.Duration // pause after a failure; it doubles
	Longest    time.Duration // up to this
	SayAgain   time.Duration // between two warnings about a store that does not take anything
}

// Usual is the pace of a run: at most five minutes of samples are lost with the machine.
var Usual = Pace{Look: 10 * time.Second, Unfinished: 5 * time.Minute, First: time.Second, Longest: time.Minute,
	SayAgain: 10 * time.Minute}

// Host is what the archive needs of the block's host.
type Host interface {
	Log(level, message string)
	Begin(a sdk.Activity) *sdk.Ongoing
}

// File is a file of the record, as it was copied.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest is what is in the bucket.
type Manifest struct {
	Format  int       `json:"format_version"`
	Run     string    `json:"run"`
	Address string    `json:"address"`
	Written time.Time `json:"written"`
	Files   []File    `json:"files"`
	// Missing counts the pairs of files that were deleted here, for samples_bytes or samples_age, before they were copied
	// whole.
	Missing int `json:"missing,omitempty"`
	// Complete reports that the block has ended, and that all files that it had then are here.
	Complete bool `json:"complete"`
}

// state is what stateFile holds.
type state struct {
	Name    string          `json:"name"` // of the folder in the bucket
	Files   map[string]File `json:"files"`
	Last    int             `json:"last"` // the highest number of files that are complete and were copied
	Missing int             `json:"missing,omitempty"`
}

// Archive is the copy of one record. It is safe for concurrent use.
type Archive struct {
	bucket *objectstore.Bucket
	dir    string
	block  sdk.Block
	host   Host
	pace   Pace
	cancel context.CancelFunc
	ending chan struct{} // closed when the record is
	done   chan struct{} // closed when nothing is copied any more

	mu      sync.Mutex
	failing error // of the last try

	// Only the copying goroutine uses these.
	state      state
	stale      bool      // the manifest in the store does not say what is there
	unfinished time.Time // when the files that are being written were copied last
	told       time.Time // when a person was told last that the store takes nothing
}

// Open begins to copy the record in dir, which is created. The first time it tries the store, and fails when that does
// not take a small object. Close ends what it starts.
func Open(ctx context.Context, address, dir string, block sdk.Block, host Host, pace Pace) (*Archive, error) {
	at, err := objectstore.Parse(address)
	if err != nil {
		return nil, err
	}
	bucket, err := objectstore.Open(at)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the record of samples: %w", err)
	}
	copying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &Archive{bucket: bucket, dir: dir, block: block, host: host, pace: pace, cancel: cancel,
		ending: make(chan struct{}), done: make(chan struct{})}
	if err := a.begin(ctx); err != nil {
		cancel()
		return nil, err
	}
	go a.run(copying)
	return a, nil
}

// begin reads what an earlier process has copied, or names the folder in the bucket.
func (a *Archive) begin(ctx context.Context) error {
	text, err := regular.ReadFile(filepath.Join(a.dir, stateFile), regular.Record)
	switch {
	case err == nil:
		if json.Unmarshal(text, &a.state) == nil && a.state.Name != "" && a.state.Files != nil {
			a.stale = true // it may say that all is there
			return nil
		}
		a.host.Log("warn", filepath.Join(a.dir, stateFile)+" does not say what was copied: the record of samples is "+
			"copied from its beginning")
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading what of the record of samples is in %s: %w", a.bucket, err)
	}
	// Two machines that have had the block one after the other number their files from 1 on, each.
	name := "samples-" + time.Now().UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:6])
	a.state = state{Name: name, Files: map[string]File{}}
	if err := a.putManifest(ctx, false); err != nil {
		return err
	}
	return a.save()
}

// folder is where the copies are, with a slash at its end.
func (a *Archive) folder() string {
	return url.PathEscape(a.block.Address) + "/" + url.PathEscape(a.block.RunID) + "/" + a.state.Name + "/"
}

func (a *Archive) save() error {
	text, err := json.Marshal(a.state)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(a.dir, stateFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting what of the record of samples is in %s: %w", a.bucket, err)
	}
	return nil
}

// run copies until all is copied after the record's end, or ctx ends.
func (a *Archive) run(ctx context.Context) {
	defer close(a.done)
	pause := a.pace.First
	for {
		ended := false
		select {
		case <-a.ending:
			ended = true
		default:
		}
		err := a.round(ctx, ended)
		a.report(ctx, err)
		wait := a.pace.Look
		switch {
		case err != nil:
			wait, pause = pause, min(2*pause, a.pace.Longest)
		case ended:
			return
		default:
			pause = a.pace.First
		}
		wake := a.ending
		if ended {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// report keeps the failure for Close, and tells a person now and then.
func (a *Archive) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the failure before is the reason
	}
	a.mu.Lock()
	before := a.failing
	a.failing = err
	a.mu.Unlock()
	switch {
	case err == nil && before != nil && !a.told.IsZero():
		a.host.Log("info", "samples are copied to "+a.bucket.String()+" again")
		a.told = time.Time{}
	case err != nil && (a.told.IsZero() || time.Since(a.told) >= a.pace.SayAgain):
		a.host.Log("warn", fmt.Sprintf("samples are not copied to %s; it is tried again: %s", a.bucket, sdk.Message(err)))
		a.told = time.Now()
	}
}

// Close waits until all of the record, which is closed, is in the store, or until ctx ends. The error says what is not.
func (a *Archive) Close(ctx context.Context) error {
	close(a.ending)
	defer a.cancel()
	if ctx.Err() == nil {
		ongoing := a.host.Begin(sdk.Activity{What: "the last samples to be in " + a.bucket.String()})
		defer ongoing.End()
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
	}
	a.cancel()
	<-a.done
	a.mu.Lock()
	defer a.mu.Unlock()
	return &sdk.Error{Summary: fmt.Sprintf("not all samples are in %s: %s", a.bucket,
		sdk.Message(cmp.Or(a.failing, context.Cause(ctx)))),
		Remedy: "all are in " + a.dir + "; recipe apply continues the run and copies the rest; for a complete run copy " +
			"them with a tool of the store; a longer stop_timeout in the health block gives a slow store more time"}
}
