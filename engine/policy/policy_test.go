package policy_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/policy"
	"github.com/recipe-rl/recipe/schema/addr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script writes a shell script as a policy.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy")
	// A process that another test starts meanwhile would have the file open for writing, and it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func ask(t *testing.T, timeout time.Duration, paths ...string) []plan.Finding {
	t.Helper()
	found, err := policy.Ask(t.Context(), paths, timeout, &plan.Plan{FormatVersion: plan.FormatVersion, Recipe: "sums"})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// short drops what a case does not compare.
func short(found []plan.Finding) []plan.Finding {
	for i := range found {
		found[i].Policy, found[i].Detail = "", ""
	}
	return found
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	block, err := addr.Parse("trainer.tiny.policy")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script string
		want   []plan.Finding
	}{
		"nothing": {"exit 0", nil},
		"json": {`echo '{"deny": ["too many steps"], "warn": [{"msg": "no seed", "address": "trainer.tiny.policy"}]}'`,
			[]plan.Finding{{Severity: "error", Summary: "too many steps"},
				{Severity: "warning", Summary: "no seed", Address: block}}},
		"json of a package": {`echo '{"deny": [], "warn": [], "limit": 3}'`, nil},
		"json and a status": {`echo '{"deny": ["no"]}'; exit 1`, []plan.Finding{{Severity: "error", Summary: "no"}}},
		"warnings and a status": {`echo '{"warn": ["hm"]}'; exit 4`, []plan.Finding{
			{Severity: "warning", Summary: "hm"},
			{Severity: "error", Summary: "failed (exit status 4) and gave no reason"}}},
		"lines": {"echo first; echo; echo second; exit 1", []plan.Finding{{Severity: "error", Summary: "first"},
			{Severity: "error", Summary: "second"}}},
		"lines of a success": {"echo 3 rules hold", []plan.Finding{{Severity: "info", Summary: "3 rules hold"}}},
		"no reason": {"echo broken >&2; exit 3",
			[]plan.Finding{{Severity: "error", Summary: "failed (exit status 3) and gave no reason"}}},
		"reads the plan": {`grep -q '"recipe":"sums"' && echo '{"deny": ["seen"]}'`,
			[]plan.Finding{{Severity: "error", Summary: "seen"}}},
		"does not read": {`exec <&-; echo '{"warn": ["deaf"]}'`, []plan.Finding{{Severity: "warning", Summary: "deaf"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := short(ask(t, time.Minute, script(t, c.script))); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestAPolicyThatFailsDenies: whatever keeps a policy from answering, the plan is denied, and the reason is said.
func TestAPolicyThatFailsDenies(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "rules.txt")
	if err := os.WriteFile(notExecutable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, summary, detail string }{
		"missing":        {filepath.Join(t.TempDir(), "nowhere"), "cannot be run", "chmod +x"},
		"not executable": {notExecutable, "cannot be run", "chmod +x"},
		"status":         {script(t, "echo the reason >&2; exit 7"), "exit status 7", "the reason"},
		"killed":         {script(t, "kill -9 $$"), "signal: killed", ""},
		"broken json":    {script(t, `echo '{"deny": 3}'`), "not understood", `{"deny": 3}`},
		"empty reason":   {script(t, `echo '{"deny": [{}]}'`), "not understood", ""},
		"wrong address":  {script(t, `echo '{"deny": [{"msg": "x", "address": "trainer"}]}'`), "not understood", ""},
		"too much":       {script(t, "head -c 2000000 /dev/zero"), "more than 1048576 bytes", ""},
		"slow":           {script(t, "echo waiting >&2; sleep 600 & sleep 600"), "within 2s", "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if name == "slow" {
				timeout = 2 * time.Second
			}
			got := ask(t, timeout, c.path)
			if len(got) != 1 || got[0].Severity != "error" || got[0].Policy != c.path ||
				!strings.Contains(got[0].Summary, c.summary) || !strings.Contains(got[0].Detail, c.detail) {
				t.Errorf("got %+v, want %q and %q", got, c.summary, c.detail)
			}
		})
	}
}

func TestPoliciesAreAskedInOrder(t *testing.T) {
	t.Parallel()
	got := ask(t, time.Minute, script(t, `echo '{"warn": ["first"]}'`), script(t, `echo '{"deny": ["second"]}'`))
	if len(got) != 2 || got[0].Summary != "first" || got[1].Summary != "second" {
		t.Errorf("got %+v", got)
	}
}

func TestAnInterruptEndsThePolicy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	path := script(t, "touch "+started+"; sleep 600")
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, err := policy.Ask(ctx, []string{path}, time.Minute, &plan.Plan{}); err == nil {
		t.Error("an interrupted question must be an error, not a denial")
	}
}
