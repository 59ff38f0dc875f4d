package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// said is the error of a command of Slurm, in its words.
func said(command string, err error, printed string) error {
	for _, silent := range []string{"Unable to contact slurm controller", "Unable to process configuration file",
		"Could not establish a configuration source", "Socket timed out", "Connection refused"} {
		if strings.Contains(printed, silent) {
			return fmt.Errorf("%s: %w: %w: %s", command, executor.ErrUnreachable, err, printed)
		}
	}
	var exit *exec.ExitError
	if printed != "" && errors.As(err, &exit) {
		return fmt.Errorf("%s: %s", command, strings.ReplaceAll(printed, "\n", "; "))
	}
	return fmt.Errorf("%s: %w: %s", command, err, printed)
}

// explain adds to an error of sbatch what to do, where the request is wrong: then trying again does not help. Other
// errors are returned as they are.
func (s *slurm) explain(ctx context.Context, err error) error {
	remedies := []struct{ words, remedy string }{
		{"nvalid partition", "correct `partition` of the executor"},
		{"node configuration is not available", "lower gpus, cpus or memory in placement, or name another partition"},
		{"Invalid feature", "correct `constraints` in placement: `sinfo -o '%N %f'` lists what machines have"},
		{"Invalid node name", "correct `host` in placement: `sinfo -N` lists the machines"},
		{"generic resource", "correct `gpu_type` of the executor: `sinfo -o '%N %G'` lists the GPUs of machines"},
		{"nvalid account", "correct `account` of the executor: `sacctmgr show assoc user=$USER` lists yours"},
		{"nvalid qos", "correct `qos` of the executor: `sacctmgr show assoc user=$USER` lists yours"},
		{"time limit is invalid", "lower time_limit in placement, or name another partition"},
		{"unrecognized option", "correct `options` of the executor"},
	}
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.words) {
			return &sdk.Error{Summary: err.Error(), Remedy: r.remedy + s.offers(ctx)}
		}
	}
	return err
}

// partition is a part of the cluster.
type partition struct {
	name, state, limit, machines string
}

// partitions lists those of the cluster; of one executor with a partition, that one.
func (s *slurm) partitions(ctx context.Context, all bool) ([]partition, error) {
	argv := []string{"sinfo", "--noheader", "--format=%R|%a|%l|%D machines with %c CPUs, %m MB, GPUs: %G"}
	if s.config.Partition != "" && !all {
		argv = append(argv, "--partition="+s.config.Partition)
	}
	out, err := run(ctx, "", argv...)
	if err != nil {
		return nil, err
	}
	var list []partition
	for line := range strings.Lines(out) {
		if f := strings.SplitN(strings.TrimSpace(line), "|", 4); len(f) == 4 {
			list = append(list, partition{f[0], f[1], f[2], strings.ReplaceAll(f[3], "(null)", "none")})
		}
	}
	return list, nil
}

// offers is what the cluster has, as the end of a remedy.
func (s *slurm) offers(ctx context.Context) string {
	list, err := s.partitions(ctx, true)
	if err != nil || len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("; the cluster has")
	for i, p := range list {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " partition %s: %s", p.name, p.machines)
	}
	return b.String()
}

// testTimeout bounds questions that a plan asks.
const testTimeout = 15 * time.Second

// Test implements executor.Tester: sbatch itself says when the job would start.
func (s *slurm) Test(ctx context.Context, j executor.Job) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	request, err := s.Render(j)
	if err != nil {
		return "", err
	}
	_, out, err := execute(ctx, request.Text, "sbatch", "--test-only", "--chdir=/")
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%w: no answer within %s", executor.ErrUnreachable, testTimeout)
		}
		return "", s.explain(ctx, err)
	}
	if list, err := s.partitions(ctx, false); err == nil && len(list) > 0 && s.config.Partition != "" {
		// A job above the limit is taken, and waits for ever.
		if limit := duration(list[0].limit); limit > 0 && j.TimeLimit > limit {
			return "", &sdk.Error{
				Summary: fmt.Sprintf("its time limit of %s is above the limit of partition %s (%s)", j.TimeLimit,
					list[0].name, limit),
				Remedy: "lower time_limit in placement, or name another partition",
			}
		}
	}
	// "sbatch: Job 25 to start at 2026-11-22T17:42:21 using 1 processors on nodes n2 in partition gpu"
	_, start, _ := strings.Cut(strings.TrimSpace(out), " to start at ")
	return start, nil
}

// duration reads a limit of Slurm, DAYS-HOURS:MINUTES:SECONDS with fewer parts; 0 when there is none.
func duration(text string) time.Duration {
	days, rest, cut := strings.Cut(text, "-")
	if !cut {
		days, rest = "0", text
	}
	parts := strings.Split(rest, ":")
	if cut && len(parts) == 1 { // DAYS-HOURS
		parts = append(parts, "0", "0")
	}
	for len(parts) < 3 { // MINUTES:SECONDS
		parts = append([]string{"0"}, parts...)
	}
	var d, h, m, sec time.Duration
	if _, err := fmt.Sscan(strings.Join(append([]string{days}, parts...), " "), &d, &h, &m, &sec); err != nil {
		return 0 // "infinite"
	}
	return (d*24+h)*time.Hour + m*time.Minute + sec*time.Second
}

// Examine implements executor.Examiner.
func (s *slurm) Examine(ctx context.Context) []executor.Check {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	version, err := run(ctx, "", "sinfo", "--version")
	if err != nil {
		return []executor.Check{{Name: "commands", Found: err.Error(),
			Remedy: "run recipe on a login node of the cluster, or load its module"}}
	}
	checks := []executor.Check{{Name: "commands", Found: strings.TrimSpace(version)}}
	list, err := s.partitions(ctx, true)
	if err != nil {
		return append(checks, executor.Check{Name: "controller", Found: err.Error(),
			Remedy: "see `scontrol ping`; SLURM_CONF names the cluster's configuration where it is not in /etc/slurm"})
	}
	checks = append(checks, executor.Check{Name: "controller", Found: "answers"})
	if s.config.Partition == "" {
		return append(checks, executor.Check{Name: "partition", Found: "the cluster's default; it has " +
			strings.TrimPrefix(s.offers(ctx), "; the cluster has ")})
	}
	check := executor.Check{Name: "partition", Found: fmt.Sprintf("the cluster has no partition %q", s.config.Partition),
		Remedy: "correct `partition` of the executor" + s.offers(ctx)}
	for _, p := range list {
		switch {
		case p.name != s.config.Partition:
		case p.state != "up":
			check.Found, check.Remedy = fmt.Sprintf("partition %s is %s", p.name, p.state), "name another partition"
		default:
			check.Found, check.Remedy = fmt.Sprintf("%s: %s, time limit %s", p.name, p.machines, p.limit), ""
		}
	}
	return append(checks, check)
}
