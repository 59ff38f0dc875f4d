package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
)

// echoArguments makes the test's binary print its arguments and its standard input.
const echoArguments = "RECIPE_TEST_ECHO"

// TestMain makes the test's binary the program that agents name to plugins, as `recipe agent start` is.
func TestMain(m *testing.M) {
	if os.Getenv(echoArguments) != "" {
		fmt.Println(strings.Join(os.Args[1:], " "))
		_, _ = io.Copy(os.Stdout, os.Stdin)
		os.Exit(0)
	}
	if len(os.Args) > 5 && os.Args[1] == "agent" && os.Args[2] == "start" {
		var node int
		_, _ = fmt.Sscan(os.Args[4], &node)
		status, err := agent.StartOn(node, os.Args[6:], os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 111
		}
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// onTwo submits a job of two machines.
func onTwo(s *site, h *Hub) (*Job, error) {
	spec := s.spec("trainer.grpo.policy", 1)
	spec.Nodes = 2
	j, err := h.Submit(s.ctx, spec, s.open, func(string) {})
	if err == nil {
		s.t.Cleanup(func() {
			if err := s.cluster.Cancel(context.Background(), j.record.Handle, 0); err != nil {
				s.t.Error(err)
			}
		})
	}
	return j, err
}

// TestAMissingMachineIsNamed starts only one of the two agents of a job.
func TestAMissingMachineIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cluster.without = 1
	h := s.hub(time.Minute)
	h.patience = 500 * time.Millisecond
	_, err := onTwo(s, h)
	name, _ := os.Hostname()
	want := "besides " + name + ", of its 2 machines, numbers 1 (counted from 0) have not connected within 500ms"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the job of two machines, one of which is missing: %v; expected %q", err, want)
	}
}

// TestWhatAJobPrintedIsSaidOrWhyNot fails a job of which one machine is missing.
func TestWhatAJobPrintedIsSaidOrWhyNot(t *testing.T) {
	t.Parallel()
	removed := errors.New("its log was removed")
	for _, test := range []struct {
		printed string
		unread  error
		want    string
	}{
		{"", nil, "have not connected within 10ms: a firewall may keep it from the addresses in "},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\nno route\n", nil, "; it printed:\n2\n3\n4\n5\n6\n7\n8\n9\n10\nno route"},
		{"", removed, "; what it printed could not be read: its log was removed"},
		{"no route\n", removed, "; it printed:\nno route; what it printed could not be read: its log was removed"},
	} {
		s := newSite(t)
		s.cluster.without, s.cluster.printed, s.cluster.unread = 1, test.printed, test.unread
		h := s.hub(time.Minute)
		h.patience = 10 * time.Millisecond
		_, err := onTwo(s, h)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), "printed") != strings.Contains(test.want, "printed") {
			t.Errorf("a job that printed %q, read with %v: %v; expected %q", test.printed, test.unread, err, test.want)
		}
	}
}

// plugin runs a shell script as the plugin process of a job, and returns what is in the file `said` when it has ended.
func plugin(s *site, j *Job, script string) (host.Process, func() string) {
	s.t.Helper()
	p, err := j.Start(s.ctx, host.Command{Env: append(os.Environ(), "OF_THE_PLUGIN=1"),
		Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		s.t.Fatal(err)
	}
	return p, func() string {
		s.exited(p, "its script is over")
		out, err := os.ReadFile(filepath.Join(j.dir, "said"))
		if err != nil {
			s.t.Fatal(err)
		}
		return string(out)
	}
}

const onOther = `"$` + nodes.ProgramKey + `" agent start --node 1 -- `

func TestAPluginRunsProgramsOnItsOtherMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j, err := onTwo(s, s.hub(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	_, said := plugin(s, j, onOther+`sh -c 'echo "$OF_THE_PLUGIN $RECIPE_NODE_ADDRESS $RECIPE_NODE_ADDRESSES $PWD"; echo err >&2; exit 7' >said 2>&1
echo "status $?" >>said
`+onOther+`sh -c 'kill -9 $$' >>said; echo "status $?" >>said
`+onOther+`/nonexistent >>said; echo "status $?" >>said`)
	want := "1 127.0.0.1 127.0.0.1,127.0.0.1 " + j.dir + "\nerr\nstatus 7\nstatus 137\n"
	if got := said(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "not found\nstatus 127\n") {
		t.Errorf("the plugin's script wrote\n%s\nexpected\n%s…", got, want)
	}
}

// TestAProgramOfAnotherMachineEndsInOrder passes SIGTERM on, and ends the program when its command is killed.
func TestAProgramOfAnotherMachineEndsInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j, err := onTwo(s, s.hub(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	_, said := plugin(s, j, onOther+`sh -c 'trap "echo asked; exit 3" TERM; touch started; while :; do sleep 0.02; done' >said &
while ! [ -e started ]; do sleep 0.02; done; kill $!; wait $!; echo "status $?" >>said`)
	if got := said(); !strings.HasSuffix(got, "asked\nstatus 3\n") {
		t.Errorf("asked to end, the program and its command wrote %q; expected \"asked\" and status 3", got)
	}

	p, _ := plugin(s, j, `echo >said; `+onOther+`sh -c 'echo $$ >pid.new; mv pid.new pid; sleep 600'`)
	pid := 0
	for pid == 0 {
		text, _ := os.ReadFile(filepath.Join(j.dir, "pid"))
		_, _ = fmt.Sscan(string(text), &pid)
		if s.ctx.Err() != nil {
			t.Fatal("the program has not started within a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := p.Kill(s.ctx); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pid, 0) == nil {
		if s.ctx.Err() != nil {
			t.Fatal("the program on the other machine runs on although the plugin was killed")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestOnlyTheFirstMachineStartsProgramsOnOthers connects to an agent as the second one of the same job would, and as
// one of another job.
func TestOnlyTheFirstMachineStartsProgramsOnOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	j, err := onTwo(s, h)
	if err != nil {
		t.Fatal(err)
	}
	other := s.submit(h, "environment.tiny.e")
	for what, c := range map[string]struct{ name, said string }{
		"the first machine":  {j.peer.name, `{"ended":true}`},
		"the second machine": {j.members[1].name, "only the first agent of the job may start programs here"},
		"another job":        {other.peer.name, "only the first agent of the job may start programs here"},
	} {
		credentials, err := h.authority.issue(c.name)
		if err != nil {
			t.Fatal(err)
		}
		config, err := credentials.Config(j.members[1].name)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", j.members[1].hello.Data, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(`{"program": {"argv": ["true"]}}` + "\n")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		got, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(got, c.said) {
			t.Errorf("%s starts a program, and is told %q, %v; expected %q", what, got, err, c.said)
		}
		_ = conn.Close()
	}
}
