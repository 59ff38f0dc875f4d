package slurm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// queued is a job in the queue, or one that has ended a short time ago (MinJobAge).
type queued struct {
	id     string
	key    executor.Key
	status executor.Status
}

// queueFormat is id, state, reason, nodes, start, comment. Text and not JSON: its fields are the same in all versions.
const queueFormat = "%i|%T|%r|%N|%S|%k"

// queue lists the jobs of this user that recipe has submitted, by one command.
func queue(ctx context.Context) ([]queued, error) {
	out, err := run(ctx, "", "squeue", "--noheader", "--states=all", "--user="+strconv.Itoa(os.Getuid()),
		"--format="+queueFormat)
	if err != nil {
		return nil, err
	}
	return parseQueue(out)
}

func parseQueue(text string) ([]queued, error) {
	var list []queued
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "|", 6)
		if len(fields) != 6 {
			return nil, fmt.Errorf("squeue printed %q; expected six fields", line)
		}
		key, ours := keyIn(fields[5])
		if !ours {
			continue
		}
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
	return list, nil
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
