// Package policy asks executables and files of conditions whether a plan may be applied. An executable reads the plan
// as JSON and answers with reasons to deny it or to warn; docs/ci.md has the contract.
package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/parse"
)

// DefaultTimeout is how long one policy may take.
const DefaultTimeout = time.Minute

const (
	maxAnswer  = 1 << 20                // bytes of an answer that are read
	closeAfter = 500 * time.Millisecond // how long the output may stay open after the policy has ended
)

// Ask asks the policies one after another about p and returns their answers as findings: an error for each denial, a
// warning for each warning. A policy that cannot be asked, that fails or that takes longer than timeout denies.
func Ask(ctx context.Context, policies []string, timeout time.Duration, p *plan.Plan) ([]plan.Finding, error) {
	if len(policies) == 0 {
		return nil, nil
	}
	input, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write the plan for policies: %w", err)
	}
	var findings []plan.Finding
	for _, path := range policies {
		var answered []plan.Finding
		if strings.HasSuffix(path, parse.PolicySuffix) {
			answered = evaluate(path, input)
		} else {
			answered = ask(ctx, path, timeout, input)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for i := range answered {
			answered[i].Policy = path
		}
		findings = append(findings, answered...)
	}
	return findings, nil
}

func ask(ctx context.Context, path string, timeout time.Duration, input []byte) []plan.Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	program, err := filepath.Abs(path)
	if err != nil {
		return failed(err.Error(), "")
	}
	out, errs := &limited{}, &limited{}
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(input), out, errs, os.Environ()
	// A policy may be a script: what it has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = closeAfter
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return failed(fmt.Sprintf("did not answer within %s", timeout), errs.tail())
	case out.over:
		return failed(fmt.Sprintf("answered with more than %d bytes", maxAnswer), "")
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return failed("cannot be run: "+err.Error(), "expected an executable file; for a script, check its first line "+
			"(#!) and run chmod +x")
	}
	findings, err := read(out.kept, exit == nil)
	switch {
	case err != nil:
		return failed("its answer is not understood: "+err.Error(), out.tail())
	case exit != nil && !denies(findings):
		return append(findings, failed(fmt.Sprintf("failed (%s) and gave no reason", exit), errs.tail())...)
	}
	return findings
}

// failed is the denial of a policy that gave no valid answer.
func failed(why, detail string) []plan.Finding {
	return []plan.Finding{{Severity: "error", Summary: why, Detail: detail}}
}

func denies(findings []plan.Finding) bool {
	for _, f := range findings {
		if f.Severity == "error" {
			return true
		}
	}
	return false
}

// read reads an answer: a JSON object with deny and warn, or lines of text, each a denial when the policy failed and a
// note otherwise.
func read(text []byte, succeeded bool) ([]plan.Finding, error) {
	text = bytes.TrimSpace(text)
	var findings []plan.Finding
	if !bytes.HasPrefix(text, []byte("{")) {
		severity := "error"
		if succeeded {
			severity = "info"
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" {
				findings = append(findings, plan.Finding{Severity: severity, Summary: line})
			}
		}
		return findings, nil
	}
	var answer struct{ Deny, Warn []reason }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf(`expected {"deny": [REASON, …], "warn": [REASON, …]}: %w`, err)
	}
	for _, r := range answer.Deny {
		findings = append(findings, plan.Finding{Severity: "error", Address: r.address, Summary: r.message})
	}
	for _, r := range answer.Warn {
		findings = append(findings, plan.Finding{Severity: "warning", Address: r.address, Summary: r.message})
	}
	return findings, nil
}

// reason is one entry of an answer: a text, or an object with msg and, for a block, its address.
type reason struct {
	message string
	address addr.Block
}

func (r *reason) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &r.message) == nil && r.message != "" {
		return nil
	}
	var object struct {
		Msg     string
		Address addr.Block
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf(`a reason is a text or {"msg": TEXT, "address": ADDRESS}, got %s: %w`, data, err)
	}
	if object.Msg == "" {
		return fmt.Errorf(`a reason is a text or {"msg": TEXT, "address": ADDRESS}, got %s`, data)
	}
	r.message, r.address = object.Msg, object.Address
	return nil
}

// limited keeps the first bytes of an output and drops the rest.
type limited struct {
	kept []byte
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := min(len(p), maxAnswer-len(l.kept))
	l.kept = append(l.kept, p[:room]...)
	l.over = l.over || room < len(p)
	return len(p), nil
}

// tail is the last lines, at most ten, for the detail of a finding.
func (l *limited) tail() string {
	lines := strings.Split(strings.TrimSpace(string(l.kept)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
