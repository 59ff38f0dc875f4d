package slurm

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/executor"
)

var unusual = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// Render implements executor.Executor: the request is the script that sbatch gets.
func (s *slurm) Render(j executor.Job) (executor.Request, error) {
	header, err := s.header(j)
	if err != nil {
		return executor.Request{}, err
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n" + header + "umask 077\n" + setup(s.config.Setup) + s.config.prepare())
	input, err := hereDocument(j)
	if err != nil {
		return executor.Request{}, err
	}
	line := s.command(j)
	if input != "" {
		line += " <<'" + endOfInput + "'"
	}
	if nodes := max(j.Nodes, 1); nodes == 1 {
		b.WriteString("exec" + line + "\n" + input)
	} else {
		b.WriteString(srun(nodes, j.CPUs) + numbered + line + " &\n" + input + awaitStep)
	}
	return executor.Request{Language: "sbatch", Text: b.String()}, nil
}

// command is that of a job, quoted for a shell.
func (s *slurm) command(j executor.Job) string { return s.config.prefix(j.GPUs) + words(j.Argv) }

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// header is the part of a job's script with the options of sbatch.
func (s *slurm) header(j executor.Job) (string, error) {
	if len(j.Argv) == 0 {
		return "", fmt.Errorf("job %s has no command", j.Key)
	}
	var b strings.Builder
	option := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "#SBATCH --%s=%s\n", name, value)
		}
	}
	for _, path := range []string{j.Dir, j.Host} {
		if strings.ContainsAny(path, "\"\n") {
			return "", fmt.Errorf("job %s: %q cannot stand in a script of sbatch", j.Key, path)
		}
	}
	if strings.ContainsAny(j.Host, " \t") { // what follows would be options of their own
		return "", fmt.Errorf("job %s: placement names the machine %q; expected a name without blanks", j.Key, j.Host)
	}
	option("job-name", jobName(j.Block))
	option("comment", comment(j.Key))
	option("partition", s.config.Partition)
	option("account", s.config.Account)
	option("qos", s.config.QOS)
	nodes := max(j.Nodes, 1)
	option("nodes", fmt.Sprint(nodes))
	option("ntasks", fmt.Sprint(nodes))
	if nodes > 1 {
		option("ntasks-per-node", "1")
	}
	if j.CPUs > 0 {
		option("cpus-per-task", fmt.Sprint(j.CPUs))
	}
	if j.Memory > 0 {
		option("mem", fmt.Sprintf("%dM", (j.Memory+1<<20-1)>>20))
	}
	if j.GPUs > 0 {
		kind := "gpu"
		if s.config.GPUType != "" {
			kind += ":" + s.config.GPUType
		}
		option("gres", fmt.Sprintf("%s:%d", kind, j.GPUs))
	}
	if j.TimeLimit > 0 {
		option("time", fmt.Sprint(int64((j.TimeLimit+time.Minute-1)/time.Minute)))
	}
	// before the time limit, so that its block can stop in order; Slurm may ask up to a minute earlier
	option("signal", fmt.Sprintf("B:TERM@%d", int(j.Notice().Seconds())))
	option("nodelist", j.Host)
	if len(j.Constraints) > 0 {
		text := strings.Join(j.Constraints, "&")
		if strings.ContainsAny(text, "\"\n") {
			return "", fmt.Errorf("job %s: constraints %q cannot stand in a script of sbatch", j.Key, text)
		}
		option("constraint", `"`+text+`"`)
	}
	if j.Dir == "" { // a machine of its own, where nothing is to be left
		option("chdir", "/")
		option("output", "/dev/null")
	} else {
		option("chdir", `"`+j.Dir+`"`)
		option("output", `"`+strings.ReplaceAll(logOf(j), "%", "%%")+`"`)
	}
	// The engine decides what becomes of a block whose job was lost, and submits a new attempt.
	b.WriteString("#SBATCH --no-requeue\n")
	option("export", "ALL") // of sbatch's environment, which is jobEnvironment
	for _, o := range s.config.Options {
		fmt.Fprintf(&b, "#SBATCH %s\n", o)
	}
	return b.String(), nil
}

// jobName is the name of a block's jobs in the queue.
func jobName(block string) string { return unusual.ReplaceAllString("recipe-"+block, "_") }

// endOfInput ends the standard input of a job's program in its script.
const endOfInput = "END_OF_INPUT"

// hereDocument is the standard input of a job's program as it stands in its script, which Slurm shows to nobody but its
// user and its operators; empty: there is none.
func hereDocument(j executor.Job) (string, error) {
	if j.Input == "" {
		return "", nil
	}
	if strings.Contains(j.Input, endOfInput) || !strings.HasSuffix(j.Input, "\n") {
		return "", fmt.Errorf("job %s: its input must end with a newline and not contain %s", j.Key, endOfInput)
	}
	return j.Input + endOfInput + "\n", nil
}

// setup runs the lines of the executor block, and names the environment variables that they change: the agent gives a
// block its engine's environment, and of this one what is named.
func setup(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "declare -A before; for v in $(compgen -e); do before[$v]=${!v}; done\n" + strings.Join(lines, "\n") + "\n" +
		"changed=; for v in $(compgen -e); do [ \"${before[$v]+=}${before[$v]}\" = \"=${!v}\" ] || changed+=,$v; done\n" +
		"export " + executor.PassVariable + "=${changed#,}\n"
}

// awaitStep waits for srun. A request to end the job is passed on to the commands by scancel: srun would kill them.
const awaitStep = `step=$!
trap 'scancel --signal=TERM "$SLURM_JOB_ID"' TERM
wait $step; status=$?
while kill -0 $step 2>/dev/null; do wait $step; status=$?; done
exit $status
`

// srun starts a command on each machine of a job.
func srun(nodes, cpus int) string {
	text := fmt.Sprintf("srun --nodes=%d --ntasks=%d --ntasks-per-node=1 --kill-on-bad-exit=0 --export=ALL", nodes, nodes)
	if cpus > 0 { // srun does not take it from the job
		text += fmt.Sprintf(" --cpus-per-task=%d", cpus)
	}
	return text
}

// numbered runs a command with the number of its machine.
const numbered = " /bin/sh -c '" + executor.NodeVariable + `=$SLURM_PROCID exec "$0" "$@"'`

// logOf is where a job's program prints; empty: nowhere.
func logOf(j executor.Job) string {
	if j.Dir == "" {
		return ""
	}
	return filepath.Join(j.Dir, fmt.Sprintf("agent-%d.log", j.Attempt))
}

const commentPrefix = "recipe:"

// comment holds the key of a job, in characters that no command of Slurm changes.
func comment(k executor.Key) string { return commentPrefix + url.QueryEscape(k.String()) }

// keyIn reads a comment; false for a job of someone else.
func keyIn(comment string) (executor.Key, bool) {
	text, ours := strings.CutPrefix(comment, commentPrefix)
	if !ours {
		return executor.Key{}, false
	}
	text, err := url.QueryUnescape(text)
	if err != nil {
		return executor.Key{}, false
	}
	k, err := executor.ParseKey(text)
	return k, err == nil
}
