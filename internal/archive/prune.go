package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// prune removes from the store what the trainer has removed here, and what an upload that was cut off has left. A
// checkpoint that this machine has not had stays.
func (x *Archive) prune(ctx context.Context) {
	if err := x.clean(ctx); err != nil && ctx.Err() == nil {
		x.host.Log("warn", fmt.Sprintf("old checkpoints in %s could not be removed: %v", x.bucket, err))
	}
}

func (x *Archive) clean(ctx context.Context) error {
	names, err := x.bucket.List(ctx, x.root())
	if err != nil {
		return err
	}
	list, err := x.read(ctx, names)
	if err != nil || len(list) == 0 {
		return err
	}
	begun, err := x.know(ctx)
	if err != nil {
		return err
	}
	gone := x.gone(names, list, begun)
	for name := range gone {
		if e := x.remove(ctx, name); e != nil {
			err = errors.Join(err, e)
			delete(gone, name)
		}
	}
	x.forget(gone)
	return err
}

// gone are the names of checkpoints in the store that are to be there no more.
func (x *Archive) gone(names []string, list []stored, begun string) map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	keep := map[string]bool{runFile: true, x.sent: true}
	for _, m := range slices.Backward(list) {
		if m.wrong == nil && m.Begun == begun && !x.damaged[m.Name] { // the newest that a machine can go on from
			keep[m.Name] = true
			break
		}
	}
	if x.pending != nil {
		keep[x.pending.Name] = true
	}
	for _, m := range list {
		if _, err := os.Stat(filepath.Join(x.dir, m.Name)); err == nil || !x.had[m.Name] {
			keep[m.Name] = true
		}
	}
	gone := map[string]bool{}
	for _, name := range names {
		first, _, _ := strings.Cut(strings.TrimPrefix(name, x.root()), "/")
		if first = strings.TrimSuffix(first, manifestEnd); !keep[first] {
			gone[first] = true
		}
	}
	return gone
}

// remove removes a checkpoint from the store, its manifest first.
func (x *Archive) remove(ctx context.Context, name string) error {
	if err := x.bucket.Remove(ctx, x.root()+name+manifestEnd); err != nil {
		return err
	}
	files, err := x.bucket.List(ctx, x.root()+name)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f == x.root()+name || strings.HasPrefix(f, x.root()+name+"/") {
			if err := x.bucket.Remove(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}
