package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

func newFork(a *app) *cobra.Command {
	var (
		recipe recipeFlags
		from   string
		step   int64
	)
	cmd := &cobra.Command{
		Use:   "fork FILE",
		Short: "Make a new run that continues a checkpoint of another",
		Long: `Make a new run that continues a checkpoint of another run, with a recipe of its own. FILE is that recipe; when it
does not exist, the recipe of the other run is copied there, with its lock and without its name: the new run is called
like FILE. Then change it, and look at the plan: trainers resume from the checkpoint. The other run does not change, and
nothing is started.

  recipe fork -r quickstart.hcl --at 100 slower.hcl
  recipe plan slower.hcl

The other run may also be one whose checkpoints are in a store, by the address of its folder or of a checkpoint there.
Keys are taken from this environment, and FILE must exist:

  recipe fork -r s3://my-bucket/runs/trainer.grpo.policy/0123456789abcdef/step_40 slower.hcl`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("at") {
				step = session.Newest
			}
			other, err := parentOf(from)
			if err != nil {
				return err
			}
			file, copied, err := other.recipe(args[0])
			if err != nil {
				return err
			}
			opts, err := recipe.options(a, file)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			err = a.diagnose(r, diags, false)
			if err == nil {
				continued, failed := other.fork(cmd.Context(), r, step, a.out)
				for _, c := range continued {
					fmt.Fprintf(a.out, "%s of %s continues from step %d.\n", c.Address, r.File, c.Step)
				}
				err = failed
			}
			if err != nil {
				for _, path := range copied {
					err = errors.Join(err, os.Remove(path))
				}
			}
			if err == nil {
				fmt.Fprintf(a.out, "Next: change %s, then recipe plan %s\n", r.File, r.File)
			}
			return err
		},
	}
	recipe.add(cmd)
	addRun(cmd, &from)
	cmd.Flags().Int64Var(&step, "at", 0, "the `STEP` of the checkpoint; without it the newest one")
	return cmd
}

// parent is what a run is forked from: a run of this machine, or checkpoints in a store.
type parent struct {
	name   string // as the user has given it
	stored bool   // name is the address of a store
	dir    state.Dir
	run    *state.Run
}

func parentOf(name string) (p parent, err error) {
	p = parent{name: name, stored: strings.HasPrefix(name, "s3://")}
	if !p.stored {
		p.dir, p.run, err = locateRun(name)
	}
	return p, err
}

func (p parent) fork(ctx context.Context, r *schema.Recipe, step int64, out io.Writer) ([]lineage.Checkpoint, error) {
	if !p.stored {
		return session.Fork(p.dir, r, step)
	}
	return session.ForkStored(ctx, p.name, r, step, func(line string) { fmt.Fprintln(out, line) })
}

// copiedBytes is the most that a recipe or its lock may have that a fork copies.
const copiedBytes = 16 << 20

// recipe is the recipe of a fork; it is copied from that of the other run when it is not there, with the lock of its
// packages. copied are the files that were made.
func (p parent) recipe(file string) (path string, copied []string, err error) {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, nil, err
	}
	if p.stored {
		return "", nil, fmt.Errorf("%s does not exist, and a store has no recipes to copy: name a recipe that declares "+
			"the trainer", file)
	}
	recorded := recipePath(p.dir, p.run)
	if info, err := os.Stat(p.name); err == nil && !info.IsDir() {
		recorded = p.name
	}
	text, err := regular.FollowFile(recorded, copiedBytes)
	if err == nil {
		err = outfile.Write(context.Background(), file, parse.Unnamed(text), 0o644)
	}
	if err != nil {
		return "", nil, fmt.Errorf("copy the recipe of the run to %s: %w", file, err)
	}
	copied = []string{file}
	lock := parse.LockFile(file)
	if _, err := os.Stat(lock); !errors.Is(err, fs.ErrNotExist) {
		return file, copied, nil // somebody's own
	}
	locked, err := regular.FollowFile(parse.LockFile(recorded), copiedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return file, copied, nil
	}
	if err == nil {
		err = outfile.Write(context.Background(), lock, locked, 0o644)
		copied = append(copied, lock)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("copy the lock of the run's recipe to %s: %w", lock, err), os.Remove(file))
	}
	return file, copied, nil
}
