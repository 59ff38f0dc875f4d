package slurm

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// queued is a job in the queue, or one that has ended a short time ago (MinJobAge).
type queued struct {
	id     string
	key    executor.Key // zero: its comment is not one of recipe's
	status executor.Status
}

// queueFormat is id, state, reason, nodes, start, comment. Text and not JSON: its fields are the same in all versions,
// and with --json old versions list the jobs of everyone. None of the fields before the comment can hold a "|".
const queueFormat = "%i|%T|%r|%N|%S|%k"

// noSuchJob is in what Slurm's commands print of an ID that the controller does not know.
const noSuchJob = "nvalid job id"

// queue lists the jobs of this user that recipe has submitted, by one command.
func queue(ctx context.Context) ([]queued, error) { return squeue(ctx) }

// queueOf lists the jobs of handles, by one command, which names no other jobs.
func queueOf(ctx context.Context, handles []executor.Handle) ([]queued, error) {
	var ids []string
	for _, h := range handles {
		if id, _ := leader(h.ID); number(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := squeue(ctx, "--jobs="+strings.Join(ids, ","))
	if err != nil && strings.Contains(err.Error(), noSuchJob) { // of one ID; of several, those known are listed
		return nil, nil
	}
	return list, err
}

// number reports whether an ID can be one of Slurm's, so that it can stand in an argument.
func number(id string) bool {
	_, err := strconv.ParseUint(id, 10, 64)
	return err == nil
}

func squeue(ctx context.Context, which ...string) ([]queued, error) {
	out, err := run(ctx, "", append([]string{"squeue", "--noheader", "--states=all", "--user=" + strconv.Itoa(os.Getuid()),
		"--format=" + queueFormat}, which...)...)
	if err != nil {
		return nil, err
	}
	return parseQueue(out), nil
}

// parseQueue skips what is no job: a comment of another job may have several lines, and a site may print a greeting.
func parseQueue(text string) (list []queued) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "|", 6)
		if id, _ := leader(fields[0]); len(fields) != 6 || !number(id) {
			continue
		}
		key, _ := keyIn(fields[5])
		st := statusOf(fields[1], fields[2], fields[3])
		if st.State == executor.Pending {
			st.Reason = inWords(st.Reason)
		}
		if at, err := time.ParseInLocation("2006-01-02T15:04:05", fields[4], time.Local); err == nil &&
			st.State == executor.Pending {
			st.Expected = at
		}
		list = append(list, queued{id: fields[0], key: key, status: st})
	}
	return list
}

// statusOf translates a state of Slurm. The reason of a job that has not simply ended is its state.
func statusOf(state, reason, nodes string) executor.Status {
	if reason == "None" {
		reason = ""
	}
	st := executor.Status{Reason: reason, Node: nodes}
	switch state {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "SUSPENDED":
		st.State = executor.Pending
	case "CONFIGURING": // its machines are booting, which takes minutes
		st.State, st.Reason = executor.Pending, state
	case "RUNNING", "RESIZING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED":
		st.State = executor.Running
	case "COMPLETED":
		st.State, st.Reason = executor.Succeeded, ""
	case "CANCELLED":
		st.State = executor.Canceled
	case "FAILED":
		st.State = executor.Failed
	case "NODE_FAIL", "BOOT_FAIL", "REVOKED":
		st.State, st.Reason = executor.Lost, state
	default: // TIMEOUT, PREEMPTED, OUT_OF_MEMORY, DEADLINE, and what later versions add
		st.State, st.Reason = executor.Failed, state
	}
	return st
}

// exitCode reads STATUS:SIGNAL. A program that a signal ended has 128 more than the signal, as in a shell.
func exitCode(text string) *int {
	status, signal, _ := strings.Cut(text, ":")
	code, err := strconv.Atoi(status)
	if err != nil {
		return nil
	}
	if n, err := strconv.Atoi(signal); err == nil && n > 0 && code == 0 {
		code = 128 + n
	}
	return &code
}

// field returns a field of a line of NAME=VALUE.
func field(line, name string) string {
	for f := range strings.FieldsSeq(line) {
		if value, ok := strings.CutPrefix(f, name+"="); ok {
			return value
		}
	}
	return ""
}
