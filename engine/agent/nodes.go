package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// A job may have several machines, each with an agent. The plugin process runs beside the first agent. A program that
// it wants on another machine is started by `recipe agent start`: that connects to the first agent by a socket, which
// connects to the other agent by mutual TLS, which starts the program. The connection lives as long as the program:
// what it prints comes back on it, and the program ends when the connection does.

// Program is started on another machine of the job.
type Program struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// startRequest is the first line that `recipe agent start` writes to its agent, or, with a port, a plugin that connects
// to another machine.
type startRequest struct {
	nodes.Request
	Program Program `json:"program"`
}

// opens is what the other agent is asked for.
func (r *startRequest) opens() opening {
	if r.Port > 0 {
		return opening{Target: net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port))}
	}
	return opening{Program: &r.Program}
}

// order is a line from the side that has a program started.
type order struct {
	Signal syscall.Signal `json:"signal"`
}

// outcome is a line from the side where the program runs: a part of what it has printed, or how it ended.
type outcome struct {
	Output []byte `json:"output,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Status int    `json:"status,omitempty"` // as of a shell: 128 and the number of the signal that has killed it
	Error  string `json:"error,omitempty"`  // why it could not be started
}

// group learns who the agents of the job are; the first one then takes programs for the others.
func (a *Agent) group(members []Member) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.boot.Node >= len(members) {
		return fmt.Errorf("the job has %d machines, and this is number %d, counted from 0", len(members), a.boot.Node)
	}
	a.members = members
	if a.boot.Node > 0 || a.remoteStarts != nil {
		return nil
	}
	folder, err := a.socketFolder()
	if err != nil {
		return err
	}
	if a.remoteStarts, err = net.Listen("unix", filepath.Join(folder, "nodes")); err != nil {
		return fmt.Errorf("listen for programs of other machines: %w", err)
	}
	go accept(a.remoteStarts, a.passOn)
	return nil
}

// nodesEnvironment is what a program of this machine learns of it and of the job's machines. It is called with the lock
// held.
func (a *Agent) nodesEnvironment() []string {
	var out []string
	if own := a.data.host(); own != "" {
		out = append(out, nodes.AddressKey+"="+own)
	}
	if len(a.members) == 0 {
		return out
	}
	addresses := make([]string, len(a.members))
	for i, m := range a.members {
		addresses[i], _, _ = net.SplitHostPort(m.Via[0])
	}
	out = append(out, nodes.AddressesKey+"="+strings.Join(addresses, ","))
	if name := interfaceOf(addresses[a.boot.Node]); name != "" && os.Getenv(glooInterface) == "" {
		out = append(out, glooInterface+"="+name, chosenInterface+"="+name)
	}
	if a.remoteStarts != nil {
		program, _ := os.Executable()
		out = append(out, nodes.ProgramKey+"="+program, nodes.SocketKey+"="+a.remoteStarts.Addr().String())
	}
	return out
}

// glooInterface says by which network PyTorch's processes talk. Without it they take the one that the machine's name
// leads to, which on many machines is loopback.
const glooInterface = "GLOO_SOCKET_IFNAME"

// chosenInterface is what an agent has set glooInterface to: another machine may call its network differently.
const chosenInterface = "RECIPE_NODE_INTERFACE"

// withoutChosen is an environment without the network that the agent of another machine has chosen.
func withoutChosen(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return name == glooInterface && slices.Contains(env, chosenInterface+"="+value)
	})
}

// interfaceOf is the network interface with an address; empty when there is none.
func interfaceOf(address string) string {
	all, _ := net.Interfaces()
	for _, i := range all {
		own, _ := i.Addrs()
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.ParseIP(address)) {
				return i.Name
			}
		}
	}
	return ""
}

// passOn connects a `recipe agent start` with the agent that is to start its program.
func (a *Agent) passOn(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(dialTimeout))
	var r startRequest
	if err := readLine(in, &r); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	other, err := a.toMember(r.Node)
	if err == nil {
		err = writeLine(other, r.opens())
	}
	if err != nil {
		_ = writeLine(c, nodes.Answer{Error: err.Error(), Away: true}) // an outcome, too
		return
	}
	splice(conn{c, in}, other)
}

// toMember connects to the agent on another machine of the job.
func (a *Agent) toMember(node int) (net.Conn, error) {
	a.mu.Lock()
	members := a.members
	a.mu.Unlock()
	if node <= 0 || node >= len(members) {
		return nil, fmt.Errorf("the job has no machine %d; expected 1 to %d", node, len(members)-1)
	}
	config, err := a.boot.Credentials.Config(members[node].Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*dialTimeout)
	defer cancel()
	c, err := dialFirst(ctx, members[node].Via, config)
	if err != nil {
		return nil, fmt.Errorf("connect to machine %d of the job: %w", node, err)
	}
	return c, nil
}

// leads says whether a certificate is that of the agent on the first machine of the job. It may have programs started
// here, and connect to them.
func (a *Agent) leads(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.members) > 0 && a.boot.Node > 0 && name == a.members[0].Name
}

// runFor runs a program for the agent on the first machine of the job, and for no other.
func (a *Agent) runFor(from string, p Program, c net.Conn) {
	a.mu.Lock()
	own := a.nodesEnvironment()
	a.mu.Unlock()
	if !a.leads(from) {
		_ = writeLine(c, outcome{Error: "only the first agent of the job may start programs here"})
		return
	}
	env := environment(withoutChosen(p.Env), os.Environ(), a.ownNames())
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, glooInterface+"=") }) { // the recipe's
		own = withoutChosen(own)
	}
	p.Env = append(env, own...)
	if err := a.runProgram(p, c); err != nil {
		_ = writeLine(c, outcome{Error: err.Error()})
	}
}

// runProgram runs a program until it has ended, or until the connection has.
func (a *Agent) runProgram(p Program, c net.Conn) error {
	printed, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = printed.Close() }()
	folder, err := os.MkdirTemp("", "recipe-node-")
	if err != nil {
		_ = write.Close()
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	program, err := proc.Start(context.Background(), proc.Spec{Name: "program", Env: p.Env, Dir: p.Dir, LogDir: folder,
		Argv:  append([]string{"/bin/sh", "-c", `exec "$@" >&3 2>&1 3>&-`, "sh"}, p.Argv...),
		Files: []*os.File{write}, Session: true})
	_ = write.Close()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.log, "%s started process %d for the first machine: %s\n", time.Now().Format(time.RFC3339),
		program.PID(), strings.Join(p.Argv, " "))
	go obey(program, c)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(outputTo{c}, printed)
	}()
	<-program.Done()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err = program.Stop(ctx, 0) // what it has started ends with it
	select {
	case <-sent:
	case <-time.After(dialTimeout): // something else holds its output
	}
	return errors.Join(err, writeLine(c, outcome{Ended: true, Status: statusOf(program.Err())}))
}

// obey carries out the orders of the side that has a program started, and ends the program with the connection.
func obey(program *proc.Program, c net.Conn) {
	in := bufio.NewReader(c)
	for {
		var o order
		if err := readLine(in, &o); err != nil {
			break
		}
		_ = program.Signal(o.Signal) // it may have ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = program.Stop(ctx, 0)
}

// outputTo sends what a program prints.
type outputTo struct{ net.Conn }

func (o outputTo) Write(b []byte) (int, error) { return len(b), writeLine(o.Conn, outcome{Output: b}) }

// statusOf is an exit status as a shell gives it.
func statusOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return 128 + int(s.Signal())
		}
		return exit.ExitCode()
	}
	return 1
}

// StartOn has a program started on another machine of the job, with the environment and in the folder of this process.
// It copies what the program prints to out, passes on signals, and returns its exit status.
func StartOn(node int, argv []string, out io.Writer) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	path := os.Getenv(nodes.SocketKey)
	if path == "" {
		return 0, fmt.Errorf("%s is not set: this is no program of a block on several machines", nodes.SocketKey)
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return 0, fmt.Errorf("connect to the agent of this machine: %w", err)
	}
	defer func() { _ = c.Close() }()
	program := Program{Argv: argv, Env: os.Environ(), Dir: dir}
	err = writeLine(c, startRequest{Request: nodes.Request{Node: node}, Program: program})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = writeLine(c, order{s.(syscall.Signal)})
		}
	}()
	in := bufio.NewReader(c)
	for {
		var o outcome
		switch err := readLine(in, &o); {
		case err != nil:
			return 0, fmt.Errorf("machine %d of the job cannot be reached any more: %w", node, err)
		case o.Error != "":
			return 0, fmt.Errorf("start %s on machine %d of the job: %s", argv[0], node, o.Error)
		case o.Ended:
			return o.Status, nil
		}
		if _, err := out.Write(o.Output); err != nil {
			return 0, err
		}
	}
}
