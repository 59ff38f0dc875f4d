package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

func newLogs(a *app) *cobra.Command {
	var (
		file           string
		since          string
		follow, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "logs [ADDRESS…]",
		Short: "Print the log of a run and its blocks",
		Long: `Print the log of a run and its blocks: phases, log lines, metrics, checkpoints, weight updates,
samples. With addresses, only of those blocks. It reads the run's one event log, so it works during a run and
long after it.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			blocks, err := addresses(args)
			if err != nil {
				return err
			}
			from, err := sinceTime(since, time.Now())
			if err != nil {
				return err
			}
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			for _, b := range blocks {
				if run.Blocks[b] == nil && !follow {
					if err := hadBlock(dir, b); err != nil {
						return err
					}
				}
			}
			wanted := view.Filter(blocks, from)
			style, enc := a.style(), json.NewEncoder(a.out)
			var printer view.Printer
			show := func(e event.Event) error {
				if !wanted(e) {
					return nil
				}
				if asJSON {
					return enc.Encode(e)
				}
				return printer.Print(a.out, style, e)
			}
			if follow {
				return event.Follow(cmd.Context(), dir.Events(), 0, show)
			}
			return event.Read(dir.Events(), 0, show)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines until Ctrl-C")
	cmd.Flags().StringVar(&since, "since", "", "only lines since a `TIME` such as 10m, 2h or 2026-03-01T12:00:00Z")
	return cmd
}

// sinceTime reads --since: a duration before now, or a moment.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{},
			fmt.Errorf("--since %q: expected a duration such as 10m or a time such as 2026-03-01T12:00:00Z", text)
	}
	return t, nil
}

// hadBlock returns nil if the run once had a block that it does not have any more, else an error.
func hadBlock(dir state.Dir, a addr.Block) error {
	found := errors.New("found")
	err := event.Read(dir.Events(), 0, func(e event.Event) error {
		if e.Address == a.String() {
			return found
		}
		return nil
	})
	switch {
	case errors.Is(err, found):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the run has never had a block %s; recipe status lists its blocks", a)
}
