package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/plugins/trajectories/tools"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// targetFlags say which trajectory API is meant.
type targetFlags struct {
	file   string
	target tools.Target
}

func (t *targetFlags) add(cmd *cobra.Command) {
	addRun(cmd, &t.file)
	cmd.Flags().StringVar(&t.target.URL, "url", "",
		"`URL` of a trajectory API; default: the run's, or http://127.0.0.1:8000")
	cmd.Flags().StringVar(&t.target.Token, "token", "", "its token, when --url needs one")
	cmd.Flags().StringVar(&t.target.Dir, "dir", "",
		"read the `FOLDER` of a disk store that no server has open, or of a record of samples "+
			"(samples/NAME of a run directory, of evaluations too)")
}

// find resolves the flags: what is given, or the trajectories block of the run here, or where run-api listens.
func (t *targetFlags) find() (tools.Target, error) {
	if t.target.URL != "" || t.target.Dir != "" {
		return t.target, nil
	}
	dir, run, err := locateRun(t.file)
	if errors.Is(err, errNoRun) && t.file == "" {
		return tools.Target{URL: "http://127.0.0.1:8000", Token: t.target.Token, Assumed: true}, nil
	}
	if err != nil {
		return tools.Target{}, err
	}
	var found []addr.Block
	for a := range run.Blocks {
		if a.Kind == kind.Trajectories {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		return tools.Target{}, fmt.Errorf("the run has %d trajectories blocks: choose one with --url",
			len(found))
	}
	switch run.Status {
	case state.Completed, state.Failed, state.Stopped:
		return tools.Target{}, serverEnded(dir, run, found[0])
	}
	var url string
	if err := json.Unmarshal(run.Blocks[found[0]].Outputs["url"], &url); err != nil || url == "" {
		return tools.Target{}, fmt.Errorf("%s has no address yet: recipe status shows whether it runs", found[0])
	}
	token, err := dir.Token("data", found[0], run.Blocks[found[0]].Renewals)
	return tools.Target{URL: url, Token: token}, err
}

// serverEnded reports that a run has ended, and with it the server of its groups, and where the groups are.
func serverEnded(dir state.Dir, run *state.Run, block addr.Block) error {
	refusal := &sdk.Error{
		Summary: fmt.Sprintf("the run has ended (%s), and with it %s, which would answer", run.Status, block),
		Remedy:  "recipe report sums the run up, and recipe ui has its curves and samples",
	}
	if store := filepath.Join(string(dir), "trajectories", block.FileName()); isFolder(store) {
		refusal.Remedy = "--dir " + printable.ShellWord(store) +
			", in place of the run, reads the groups that it has left (recipe " +
			"trajectories show lists them); " + refusal.Remedy
	}
	if record := filepath.Join(string(dir), "samples", block.FileName()); isFolder(record) {
		refusal.Remedy = "--dir " + printable.ShellWord(record) + " reads the record of all groups, trained ones too; " +
			refusal.Remedy
	}
	return refusal
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func newTrajectories(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trajectories",
		Short: "Watch, show, export, rescore and replay the groups that environments send",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTail(a), newShowGroups(a), newExport(a), newReplay(a), newRescore(a), newStats(a))
	return cmd
}

func newTail(a *app) *cobra.Command {
	var t targetFlags
	var o tools.TailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show groups as they arrive: environment, score, policy version, prompt and completion",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Target, err = t.find(); err != nil {
				return err
			}
			return tools.Tail(cmd.Context(), o, a.out)
		},
	}
	t.add(cmd)
	addJSON(cmd, &o.JSON)
	cmd.Flags().StringVar(&o.Env, "env", "", "only the environment of this `NAME`")
	cmd.Flags().IntVarP(&o.Count, "count", "n", 0, "stop after this many groups")
	return cmd
}

func newShowGroups(a *app) *cobra.Command {
	var t targetFlags
	var o tools.ShowOptions
	cmd := &cobra.Command{
		Use:   "show [ID]",
		Short: "List the stored groups, or show one of them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				if o.ID, err = strconv.ParseUint(args[0], 10, 64); err != nil {
					return fmt.Errorf("a group's id is a number, as `recipe trajectories show` lists them; given: %q",
						args[0])
				}
			}
			if o.Target, err = t.find(); err != nil {
				return err
			}
			return tools.Show(cmd.Context(), o, a.out)
		},
	}
	t.add(cmd)
	addJSON(cmd, &o.JSON)
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 20, "maximum number of groups")
	return cmd
}

func newExport(a *app) *cobra.Command {
	var t targetFlags
	var o tools.ExportOptions
	var file string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the stored groups as JSON Lines or Parquet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Target, err = t.find(); err != nil {
				return err
			}
			out := a.out
			if file != "" && file != "-" {
				f, err := outfile.Create(cmd.Context(), file, 0o644)
				if err != nil {
					return fmt.Errorf("create the export: %w", err)
				}
				defer func() { _ = f.Close() }()
				out = f
			}
			n, err := tools.Export(cmd.Context(), o, out)
			if err == nil && out != a.out {
				_, err = fmt.Fprintf(a.out, "%d groups in %s\n", n, file)
			}
			return err
		},
	}
	t.add(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "-", "write to a `FILE`")
	cmd.Flags().StringVar(&o.Format, "format", "jsonl", "jsonl (the input of replay) or parquet (one row per sequence)")
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "follow new groups until interrupted")
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 0, "maximum number of groups")
	return cmd
}

func newReplay(a *app) *cobra.Command {
	var t targetFlags
	var o tools.ReplayOptions
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Feed exported groups to a trajectory API, to run a trainer without inference",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Target, err = t.find(); err != nil {
				return err
			}
			f, _, err := regular.Follow(args[0])
			if err != nil {
				return fmt.Errorf("open the recording: %w", err)
			}
			defer func() { _ = f.Close() }()
			return tools.Replay(cmd.Context(), o, io.ReadSeeker(f), a.out)
		},
	}
	t.add(cmd)
	cmd.Flags().IntVar(&o.Loop, "loop", 1, "number of passes over the file")
	cmd.Flags().DurationVar(&o.Every, "every", 0*time.Second,
		"pause between groups; 0: as fast as the trainer consumes them")
	cmd.Flags().BoolVar(&o.KeepEnv, "keep-env", false, "keep env_id: the environments must be registered")
	return cmd
}

func newStats(a *app) *cobra.Command {
	var t targetFlags
	var o tools.StatsOptions
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what each environment has sent, and the outcome of its groups",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Target, err = t.find(); err != nil {
				return err
			}
			return tools.Stats(cmd.Context(), o, a.out)
		},
	}
	t.add(cmd)
	addJSON(cmd, &o.JSON)
	return cmd
}
