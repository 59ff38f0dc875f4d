// Package doctor checks this machine for what recipes need, and says what is missing and what to do about it. It
// changes nothing.
package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Verdict is how a check ended.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // some recipes will not run
	Fail Verdict = "fail" // no recipe will run
)

// Finding is the answer of one check.
type Finding struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`            // what was seen, in one line
	Remedy  string  `json:"remedy,omitempty"` // what to do; empty when the verdict is ok
}

// Machine is what the checks examine. Local is the real one; tests use their own.
type Machine struct {
	Dir      string // where run directories will be
	OS       string // as runtime.GOOS
	LookPath func(name string) (string, error)
	Run      func(ctx context.Context, name string, args ...string) (stdout string, err error)
	// LookupEnv reads a variable of the environment that blocks will inherit.
	LookupEnv func(name string) (value string, set bool)
	Listen    func(address string) error // can a server listen there? "127.0.0.1:0" is any port
	Writable  func(dir string) error
	Disk      func(dir string) (free uint64, err error)   // bytes that a user may still write
	Memory    func() (total, available uint64, err error) // bytes
	Files     func() (limit uint64, err error)            // open files that a process may have
	Processes func() (limit uint64, err error)            // processes and threads that this user may have
	// Size is that of the file system at dir, in bytes.
	Size       func(dir string) (uint64, error)
	ReadFile   func(path string) ([]byte, error)
	Interfaces func() (names []string, err error) // of the network
	// Allow is asked before an interpreter is run, or a store asked with this user's keys, that a recipe brings; nil: none
	// is.
	Allow func(trust.Use) error
	// Agent returns the agent of a name, as the attribute agent of a block has it; nil: none is known.
	Agent func(name string) (Agent, bool)
}

// allow asks; the finding says what was not tried.
func (m Machine) allow(u trust.Use) (Finding, bool) {
	var err error = &schema.NotTrusted{Untrusted: diagnostic.Untrusted{Path: u.Path, Digest: u.Digest, Why: u.Why}}
	if m.Allow != nil {
		err = m.Allow(u)
	}
	if err == nil {
		return Finding{}, true
	}
	f := Finding{Verdict: Warn, Found: err.Error()}
	var refused *schema.NotTrusted
	if errors.As(err, &refused) {
		f.Remedy = refused.Remedy()
	}
	return f, false
}

// deadline bounds one check; a driver that hangs is a finding, not a hanging doctor.
const deadline = 15 * time.Second

type check struct {
	name string
	look func(context.Context, Machine) Finding
}

func checks() []check {
	return []check{
		{"go", goToolchain},
		{"python", python},
		{"uv", uv},
		{"python variables", pythonVariables},
		{"gpu", gpu},
		{"gpu processes", gpuProcesses},
		{"gpu allocator", allocator},
		{"gpu share", gpuShare},
		{"nccl", nccl},
		{"ports", ports},
		{"port range", portRange},
		{"disk", disk},
		{"model cache", modelCache},
		{"temporary folder", temporaryFolder},
		{"memory", memory},
		{"memory limit", memoryLimit},
		{"shared memory", sharedMemory},
		{"open files", openFiles},
		{"processes", processes},
		{"run directory", runDirectory},
	}
}

// Examine runs all checks concurrently and returns their findings in a fixed order.
func Examine(ctx context.Context, m Machine) []Finding {
	all := checks()
	findings := make([]Finding, len(all))
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			findings[i] = c.look(ctx, m)
			findings[i].Name = c.name
		})
	}
	wait.Wait()
	return findings
}

// Failed reports whether any finding means that no recipe will run.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Verdict == Fail })
}
