package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
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
		pick           logSelection
	)
	cmd := &cobra.Command{
		Use:   "logs [ADDRESS…]",
		Short: "Print the log of a run and its blocks",
		Long: `Print the log of a run and its blocks: phases, log lines, metrics, checkpoints, weight updates,
samples. With addresses, only of those blocks; an address without a key stands for all instances of a
block with count or for_each. It reads the run's one event log, so it works during a run and long after
it. Lines that were repeated are printed once, with the number of those left out.

With --follow it goes on until the run has ended: completed, failed or stopped. A run whose engine was killed has not
ended, since apply adopts it, and is followed further.`,
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
			following := follow && !hasEnded(dir, run)
			for _, b := range blocks {
				if run.Blocks[b] == nil && !following {
					if err := hadBlock(dir, b); err != nil {
						return err
					}
				}
			}
			chosen, err := pick.filter()
			if err != nil {
				return err
			}
			wanted := view.Filter(blocks, from)
			style, out := a.style(), &newestLines{to: a.out, most: pick.tail}
			enc, printer := json.NewEncoder(out), view.Printer{Debug: pick.level == "debug"}
			last, err := event.WrittenBefore(dir.Events(), from.Add(-maxSkew))
			if err != nil {
				return err
			}
			selected := func(e event.Event) bool { return wanted(e) && chosen(e) }
			show := func(e event.Event) error {
				last = e.Seq
				if !selected(e) {
					return nil
				}
				if asJSON {
					return enc.Encode(e)
				}
				return printer.Print(out, style, e)
			}
			if pick.tail < 0 {
				var newest uint64
				if newest, err = event.Last(dir.Events()); err == nil {
					err = event.ReadLines(dir.Events(), last, pick.text(), show)
				}
				last = max(last, newest) // what was passed over is not read again
			} else {
				n := newest{lines: pick.tail, after: last, wanted: selected, text: pick.text(), phases: !asJSON, all: follow,
					prints: func(e event.Event) bool { return asJSON || printer.Line(view.Style{}, e) != "" }}
				err = n.read(dir.Events(), show)
				last = n.last
			}
			if err != nil {
				return err
			}
			if err := out.flush(); err != nil || !follow {
				return err
			}
			end := &ending{dir: dir}
			if err := event.FollowUntil(cmd.Context(), dir.Events(), last, show, end.reached); err != nil {
				return err
			}
			if end.status != "" {
				fmt.Fprintf(a.err, "recipe: the run has ended (%s): nothing more follows\n", end.status)
			}
			return nil
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines until the run has ended")
	cmd.Flags().StringVar(&since, "since", "", "only lines since a `TIME` such as 10m, 2h or 2026-03-01T12:00:00Z")
	pick.add(cmd)
	return cmd
}

// hasEnded says whether the run of a record has ended. One that an engine holds has not: it may have been continued.
// Nor has one whose engine was killed: apply adopts it.
func hasEnded(dir state.Dir, run *state.Run) bool {
	return run.Status != state.New && run.Status != state.Running && state.Holder(dir) == nil
}

// lookEvery is how often a follower of a log looks whether the run has ended.
const lookEvery = 500 * time.Millisecond

// ending waits for the end of a run.
type ending struct {
	dir    state.Dir
	looked time.Time
	status state.Status // of a run that has ended
}

// reached says whether the run has ended. The engine lets go of the run after its last event. A record that cannot be
// read says nothing: the log is what is followed.
func (e *ending) reached() bool {
	if time.Since(e.looked) < lookEvery {
		return false
	}
	e.looked = time.Now()
	if state.Holder(e.dir) != nil {
		return false
	}
	run, err := state.Read(e.dir)
	if err != nil || !hasEnded(e.dir, run) {
		return false
	}
	e.status = run.Status
	return true
}

// logSelection is which lines of a log are printed.
type logSelection struct {
	tail  int // the newest so many; -1: all
	level string
	grep  string
}

func (s *logSelection) add(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&s.tail, "tail", "n", -1, "only the newest `N` lines")
	cmd.Flags().StringVar(&s.level, "level", "", "only lines of at least a `LEVEL`: debug, info, warn or error")
	cmd.Flags().StringVar(&s.grep, "grep", "", "only lines that match a regular `EXPRESSION` (RE2)")
	_ = cmd.RegisterFlagCompletionFunc("level",
		cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}

// filter makes a function that says whether an event is printed.
func (s *logSelection) filter() (func(event.Event) bool, error) {
	least, known := view.Severity(s.level)
	if s.level != "" && !known {
		return nil, fmt.Errorf("--level %q: expected debug, info, warn or error", s.level)
	}
	expression, err := regexp.Compile(s.grep)
	if err != nil {
		return nil, fmt.Errorf("--grep: expected a regular expression in the syntax of RE2: %w", err)
	}
	return func(e event.Event) bool {
		if s.level != "" && view.SeverityOf(e) < least {
			return false
		}
		return s.grep == "" || expression.MatchString(view.Line(view.Style{}, e))
	}, nil
}

// text makes a function that says of the text of an event whether the event may be printed; nil: any may be.
func (s *logSelection) text() func(line []byte) bool {
	warns := s.level == "warn" || s.level == "error"
	if !warns && s.grep == "" {
		return nil
	}
	may := view.MayHold(s.grep)
	return func(line []byte) bool { return (!warns || view.MayWarn(line)) && may(line) }
}

// newestLines writes lines to another writer, or keeps the newest of them until flush. Each Write is one line.
type newestLines struct {
	to    io.Writer
	most  int // -1: all are written at once
	lines [][]byte
}

func (l *newestLines) Write(line []byte) (int, error) {
	if l.most < 0 {
		return l.to.Write(line)
	}
	l.lines = append(l.lines, bytes.Clone(line))
	return len(line), nil
}

// flush writes what is kept; lines after it are written at once.
func (l *newestLines) flush() error {
	if l.most < 0 {
		return nil
	}
	kept := l.lines[max(0, len(l.lines)-l.most):]
	l.lines, l.most = nil, -1
	_, err := l.to.Write(bytes.Join(kept, nil))
	return err
}

// maxSkew is how far the clock of a job's machine may be ahead: its events have that machine's time.
const maxSkew = time.Hour

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

// hadBlock returns nil if the run has instances of a block, or once had it or them, else an error.
func hadBlock(dir state.Dir, a addr.Block) error {
	found, text := errors.New("found"), []byte("."+a.Plugin+"."+a.Name)
	pick := event.Pick{Text: func(line []byte) bool { return bytes.Contains(line, text) },
		Event: view.Filter([]addr.Block{a}, time.Time{})}
	err := event.Back(dir.Events(), pick, func(event.Event) error { return found })
	switch {
	case errors.Is(err, found):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the run has never had a block %s; recipe status lists its blocks", a)
}
