package atropos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
)

// explainSettings turns what the launcher found wrong with the settings into an error; nil when it found nothing.
func (p *process) explainSettings() error {
	switch p.last.Event {
	case "unknown":
		var close map[string][]string
		_ = json.Unmarshal(p.last.Fields.data, &close)
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(close)) {
			part := name
			if len(close[name]) > 0 {
				part += fmt.Sprintf(" (did you mean %s?)", close[name][0])
			}
			parts = append(parts, part)
		}
		return &sdk.Error{
			Summary: "the environment's class has no setting " + strings.Join(parts, ", "),
			Detail:  "atroposlib would ignore it without a word",
			Remedy:  "correct config; the class's own settings are listed in the block's events",
		}
	case "ignored":
		return &sdk.Error{
			Summary: "the environment did not take over where inference is",
			Detail:  fmt.Sprintf("it was given %v and uses %v", p.last.Wanted, p.last.Got),
			Remedy:  "its code sets the servers by itself after config_init; remove that from the environment",
		}
	case "no-environment":
		return &sdk.Error{
			Summary: "the script ended without starting an environment",
			Detail:  p.what,
			Remedy:  "it must end in: if __name__ == \"__main__\": YourEnvironment.cli()",
		}
	}
	return nil
}

// symptom is a known failure of an environment, told by its log.
type symptom struct {
	name    string
	pattern *lazyregexp.Regexp
	summary string
	remedy  string
}

var symptoms = []symptom{
	{"sandbox", lazyregexp.New(`NoSandbox: refused`),
		"code that a model writes would run without a sandbox",
		"install bubblewrap on the machine of this block, and in a container allow it user namespaces; or set config = { " +
			"sandbox = \"none\" }, if the machine holds nothing that such code must not reach"},
	{"no-atroposlib", lazyregexp.New(`No module named '?(atroposlib|yaml)'?(\n|$)`),
		"the Python of this block has no atroposlib",
		"run recipe init, which makes one for blocks without a runtime, or point runtime { python = … } at an " +
			"interpreter that has it"},
	{
		"other-atroposlib",
		lazyregexp.New(`No module named '?atroposlib\.[\w.]+|cannot import name '\w+' from '?atroposlib`),
		"the installed atroposlib lacks something that the environment imports: they are of different versions",
		"set path to the checkout of Atropos that the environment is from, whose atroposlib is then imported; or install " +
			"that version into the block's runtime",
	},
	{"checkout-module", lazyregexp.New(`No module named '?environments\b`),
		"the environment imports a module of its checkout of Atropos",
		"set path to the checkout: its modules are then found"},
	{"module", lazyregexp.New(`No module named '?([\w.]+)`),
		"the environment needs a Python package that is not installed",
		"add the package to the block's runtime { requirements = [ … ] } and run recipe init, or install it into " +
			"runtime.python; for a module of a checkout set path"},
	{
		"other-tokenizer",
		lazyregexp.New(
			`Tokenizer class \S+ does not exist or is not currently imported|did not match any variant of untagged enum|_set_model_specific_special_tokens`,
		),
		"the tokenizer was saved by another version of transformers than the block's Python has, which cannot read it",
		"a tokenizer saved by transformers 5 needs transformers 5: run recipe init for blocks without a runtime, or add " +
			"\"transformers>=5\" to runtime { requirements = [ … ] } (\"transformers<5\" for an old one); or set tokenizer to " +
			"a folder that this version has saved",
	},
	{"group-size", lazyregexp.New(`group_size \(\d+\) must be less than batch_size \(-?\d+\)`),
		"group_size is larger than the trainer's batch_size",
		"lower group_size in this block or raise batch_size in the trainer; batch_size counts completions, not prompts"},
	{"total-steps", lazyregexp.New(`Total steps not set in config or server`),
		"neither the environment nor the trainer says how many steps there are",
		"set steps in the trainer, or total_steps here"},
	{
		"tokenizer",
		lazyregexp.New(
			`(?i)(Repo id must be in the form|couldn't connect|can't load (the )?tokenizer|is not a local folder and is not a valid model identifier)`,
		),
		"the tokenizer cannot be loaded",
		"it must be a folder on this machine or in the hub's cache; set tokenizer, or unset HF_HUB_OFFLINE",
	},
	{
		"dataset",
		lazyregexp.New(
			`(?i)(Couldn't reach .{1,80} on the Hub|OfflineModeIsEnabled|DatasetNotFoundError|Couldn't find any data file|Couldn't find cache for)`,
		),
		"the environment's data set cannot be loaded",
		"download it beforehand into the cache (HF_HOME), or put a folder of its name with the data in the directory that " +
			"path names: load_dataset takes it from there",
	},
	{"trajectories", lazyregexp.New(`RetryError|Error registering env|Cannot connect to host`),
		"the trajectory API does not answer",
		"see whether its block is up (recipe status); the environment is restarted automatically"},
	{"settings", lazyregexp.New(`validation errors? for \w+`),
		"a setting has a value that the environment's class refuses",
		"correct it in config or openai; the lines above name the setting and what is expected"},
	{"chat-template", lazyregexp.New(`chat_template is not set|no chat template`),
		"the tokenizer has no chat template, and this environment uses one",
		"use an instruction-tuned model, or set tokenizer to one that has a chat template"},
	{"logprobs", lazyregexp.New(`does not support token IDs/logprobs|ATROPOS_ALLOW_DUMMY_MANAGED_SERVER`),
		"the environment needs token ids and log-probabilities, which server_type = \"openai\" does not give",
		"set server_type = \"vllm\""},
	{"wandb", lazyregexp.New(`(?i)wandb.{0,40}(api_key not configured|No API key configured|login)`),
		"Weights & Biases asks for a key",
		"set wandb = false, or environment_variables = { WANDB_API_KEY = env(\"WANDB_API_KEY\") }"},
	{"argument", lazyregexp.New(`error: (unrecognized arguments|argument |the following arguments are required)`),
		"the environment does not know a command-line argument",
		"correct args; the settings of its class go into config"},
	{"syntax", lazyregexp.New(`SyntaxError|IndentationError`),
		"the environment's code is not valid for this version of Python",
		"correct it, or choose another interpreter in runtime { python = … }"},
	{"disk", lazyregexp.New(`No space left on device`),
		"a disk is full", "free space where data sets are cached (HF_HOME) and in the run directory"},
}

// diagnose explains the end of an environment from the way it ended and the end of its log.
func diagnose(cause error, log string) error {
	if s := killedBy(cause); s != 0 {
		return &sdk.Error{Summary: fmt.Sprintf("the environment's process was killed by %s", signalText(s)),
			Detail: lastLines(log, 10), Err: cause, Remedy: killedRemedy(s)}
	}
	if cause == nil {
		return &sdk.Error{Summary: "the environment exited", Detail: lastLines(log, 10),
			Remedy: "it came to the end of its code (a data set that ran out?); the lines above are its last"}
	}
	// An error that the environment has got over is no cause, so only what it ended with is looked at.
	last := lastError(log)
	for _, s := range symptoms {
		at := s.pattern.FindStringIndex(last)
		if at == nil {
			continue
		}
		return &sdk.Error{Summary: s.summary, Detail: around(last, at[0], at[1]), Remedy: s.remedy, Err: cause}
	}
	return &sdk.Error{Summary: "the environment failed", Detail: lastLines(log, 20), Err: cause,
		Remedy: "the lines above are the end of its log, usually with the place in its code"}
}

// killedBy is the signal that ended the process; 0 when it exited.
func killedBy(cause error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(cause, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

func signalText(s syscall.Signal) string {
	return fmt.Sprintf("signal %d (%s)", int(s), unix.SignalName(s))
}

func killedRemedy(s syscall.Signal) string {
	switch s {
	case syscall.SIGKILL:
		return "somebody sent it, or the kernel did because memory ran out: look for \"Out of memory\" in the kernel's log " +
			"(dmesg, journalctl -k), lower max_num_workers or replicas, or free memory"
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE:
		return "a library in its Python crashed; the lines above are its last"
	default:
		return "somebody sent it; the environment is started again by the block's restart policy"
	}
}

// traceback begins what Python writes of an uncaught exception.
const traceback = "Traceback (most recent call last)"

// lastError is what the environment ended with: its last traceback with all that is chained to it, when its log ends in
// one, else its last lines.
func lastError(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	from := max(0, len(lines)-endLines)
	for i := len(lines) - 1; i >= 0; i-- {
		if !strings.Contains(lines[i], traceback) {
			continue
		}
		if end := tracebackEnd(lines, i); end >= len(lines)-endLines {
			from = i
			for from > 0 && chained(lines, from) {
				from = previousTraceback(lines, from)
			}
		}
		break
	}
	return strings.Join(lines[from:], "\n")
}

// endLines are how many lines may follow the last error: the last messages of libraries.
const endLines = 12

// tracebackEnd is the line of the exception itself, the first one after the traceback that is not indented.
func tracebackEnd(lines []string, at int) int {
	for i := at + 1; i < len(lines); i++ {
		if lines[i] != "" && lines[i][0] != ' ' && lines[i][0] != '\t' {
			return i
		}
	}
	return len(lines)
}

// chained reports whether the traceback came while another exception was handled, which stands before it.
func chained(lines []string, at int) bool {
	for i := at - 1; i >= max(0, at-4); i-- {
		if strings.HasPrefix(lines[i], "During handling of the above exception") ||
			strings.HasPrefix(lines[i], "The above exception was the direct cause") {
			return true
		}
	}
	return false
}

func previousTraceback(lines []string, at int) int {
	for i := at - 1; i > 0; i-- {
		if strings.Contains(lines[i], traceback) {
			return i
		}
	}
	return 0
}

// around returns the line of a match and the two after it, where Python's errors say what they mean.
func around(text string, start, end int) string {
	from := strings.LastIndexByte(text[:start], '\n') + 1
	rest := text[end:]
	to := len(text)
	for range 3 {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		rest = rest[i+1:]
		to = len(text) - len(rest)
	}
	out := strings.TrimSpace(text[from:to])
	if len(out) > 600 {
		out = out[:600] + "…"
	}
	return out
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
