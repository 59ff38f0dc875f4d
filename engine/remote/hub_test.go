package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// cluster is an executor whose jobs are agents in this process.
type cluster struct {
	mu      sync.Mutex
	jobs    map[executor.Key]*clusterJob
	silent  bool // jobs stay pending
	without int  // machines of each job whose agents do not start
	keep    bool // Cancel is not heard, as from an engine that was killed
	printed string
	unread  error                           // why more of what jobs printed cannot be read
	omit    int                             // answers that do not name any job
	says    map[executor.Key]executor.State // instead of how the job is
	ended   []executor.Key                  // for which Cancel was called, in this order
	// engine is the file of addresses that agents read instead of the engine's own; nil: the engine's.
	engine func(own string) string

	scratch string // folder for staged files
}

// input is what the program of a job reads.
func (c *cluster) input(k executor.Key) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[k].input
}

// run starts the jobs that are pending.
func (c *cluster) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
	for _, j := range c.jobs {
		close(j.room)
	}
}

type clusterJob struct {
	bootstrap string
	input     string
	cancel    context.CancelFunc
	room      chan struct{} // closed when it leaves the queue
	done      chan struct{}
	err       error
}

func (c *cluster) OnThisMachine() {}

func (c *cluster) Render(executor.Job) (executor.Request, error) { return executor.Request{}, nil }

func (c *cluster) Submit(_ context.Context, j executor.Job) (executor.Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := executor.Handle{Key: j.Key, ID: j.Key.String()}
	if c.jobs[j.Key] != nil {
		return h, nil
	}
	job := &clusterJob{bootstrap: j.Argv[len(j.Argv)-1], input: j.Input, room: make(chan struct{}),
		done: make(chan struct{})}
	if !c.silent {
		close(job.room)
	}
	var ctx context.Context
	ctx, job.cancel = context.WithCancel(context.Background())
	c.jobs[j.Key] = job
	go func() {
		defer close(job.done)
		select {
		case <-job.room:
		case <-ctx.Done():
			return
		}
		if job.input != "" {
			job.err = agent.RunJoined(ctx, strings.NewReader(job.input), 0, c.scratch, io.Discard)
			return
		}
		job.err = c.agents(ctx, job.bootstrap, max(j.Nodes, 1)-c.without)
	}()
	return h, nil
}

// agents runs those of a job's machines.
func (c *cluster) agents(ctx context.Context, bootstrap string, nodes int) error {
	errs := make([]error, nodes)
	var group sync.WaitGroup
	for node := range nodes {
		group.Go(func() {
			b, err := agent.ReadBootstrap(bootstrap, node)
			if c.engine != nil {
				b.Engine = c.engine(b.Engine)
			}
			if err == nil {
				err = agent.Run(ctx, b, io.Discard)
			}
			errs[node] = err
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (c *cluster) Status(_ context.Context, handles []executor.Handle) ([]executor.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]executor.Status, len(handles))
	for i, h := range handles {
		out[i] = executor.Status{State: executor.Unknown, Reason: "it is not in the list"}
		if state := c.says[h.Key]; state != "" {
			out[i].State = state
		} else if j := c.jobs[h.Key]; j != nil && c.omit <= 0 {
			out[i].Reason = ""
			select {
			case <-j.done:
				out[i].State = executor.Succeeded
			default:
				out[i].State = executor.Running
				if c.silent {
					out[i] = executor.Status{State: executor.Pending, Reason: "Priority"}
				}
			}
		}
	}
	c.omit--
	return out, nil
}

func (c *cluster) Logs(_ context.Context, _ executor.Handle, to io.Writer) error {
	_, err := io.WriteString(to, c.printed)
	return errors.Join(err, c.unread)
}

func (c *cluster) Cancel(ctx context.Context, h executor.Handle, _ time.Duration) error {
	c.mu.Lock()
	j, keep := c.jobs[h.Key], c.keep
	c.ended = append(c.ended, h.Key)
	c.mu.Unlock()
	if j == nil || keep {
		return nil
	}
	j.cancel()
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cluster) List(context.Context, string) ([]executor.Handle, error) { return nil, nil }

// site is a run directory with a cluster.
type site struct {
	t       testing.TB
	run     string
	cluster *cluster
	ctx     context.Context
}

func newSite(t testing.TB) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &site{t: t, run: t.TempDir(), cluster: &cluster{jobs: map[executor.Key]*clusterJob{}}, ctx: ctx}
}

func (s *site) open(Executor) (executor.Executor, error) { return s.cluster, nil }

func (s *site) hub(lease time.Duration) *Hub {
	h := New(s.run, "run", lease)
	s.t.Cleanup(h.Close)
	return h
}

func (s *site) spec(block string, attempt int) Spec {
	s.t.Helper()
	dir := filepath.Join(s.run, "blocks", block)
	if err := private.Dir(dir); err != nil {
		s.t.Fatal(err)
	}
	return Spec{Executor: Executor{Block: "executor.test.x"}, Block: block, Attempt: attempt, Dir: dir,
		Resources: executor.Resources{Grace: 7 * time.Minute}}
}

func (s *site) submit(h *Hub, block string) *Job {
	s.t.Helper()
	j, err := h.Submit(s.ctx, s.spec(block, 1), s.open, func(string) {})
	if err != nil {
		s.t.Fatalf("Submit: %v", err)
	}
	s.t.Cleanup(func() {
		if err := s.cluster.Cancel(context.Background(), j.record.Handle, 0); err != nil {
			s.t.Error(err)
		}
	})
	return j
}

// sleeper starts a process that sleeps.
func (s *site) sleeper(j *Job) host.Process {
	s.t.Helper()
	p, err := j.Start(s.ctx, host.Command{Argv: []string{"/bin/sleep", "600"}, Env: os.Environ()})
	if err != nil {
		s.t.Fatalf("Start: %v", err)
	}
	return p
}

func (s *site) exited(p host.Process, why string) {
	s.t.Helper()
	select {
	case <-p.Exited():
	case <-s.ctx.Done():
		s.t.Fatalf("the process runs on although %s", why)
	}
}

func TestAProcessOutlivesItsEngineAndIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.hub(time.Minute)
	p := s.sleeper(s.submit(first, "trainer.tiny.a"))
	first.Close()

	second := s.hub(time.Minute)
	j, err := second.Find(s.ctx, filepath.Join(s.run, "blocks", "trainer.tiny.a"), s.open)
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	same, err := j.Find(s.ctx, p.Identity())
	if err != nil {
		t.Fatalf("find the process: %v", err)
	}
	select {
	case <-same.Exited():
		t.Fatalf("the process has ended: %s", same.Ended())
	default:
	}
	if err := j.Sweep(s.ctx, same.Identity(), nil, nil); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	s.exited(same, "its job was given back")
	if Placed(j.dir) {
		t.Error("a record is left of a job that was given back")
	}
}

func TestAConnectionThatIsCutIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j := s.submit(s.hub(time.Minute), "trainer.tiny.a")
	p := s.sleeper(j)
	client, _, _ := j.peer.state()
	client.Close()
	if _, err := j.Find(s.ctx, p.Identity()); err != nil {
		t.Fatalf("after a cut, the process is not found: %v", err)
	}
	if err := p.Kill(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.exited(p, "it was killed")
	if how := p.Ended(); how != "signal: killed" {
		t.Errorf("it ended by %q; expected \"signal: killed\"", how)
	}
}

func TestAnAgentWithoutAnEngineEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(500 * time.Millisecond)
	j := s.submit(h, "trainer.tiny.a")
	id := s.sleeper(j).Identity()
	h.Close()
	job := s.cluster.jobs[j.record.Handle.Key]
	select {
	case <-job.done:
	case <-s.ctx.Done():
		t.Fatal("the agent looks for an engine for longer than its lease")
	}
	if !errors.Is(job.err, agent.ErrLost) {
		t.Errorf("the agent ended with %v; expected %v", job.err, agent.ErrLost)
	}
	id.Host = ""
	if _, err := (host.Local{}).Find(s.ctx, id); !errors.Is(err, host.ErrGone) {
		t.Errorf("the process that it has started: %v; expected %v", err, host.ErrGone)
	}
}

func TestAPendingJobIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cluster.silent = true
	ctx, cancel := context.WithCancel(s.ctx)
	said := make(chan string, 1)
	go func() {
		if text := <-said; !strings.Contains(text, "pending: Priority") {
			t.Errorf("it reports %q; expected why the job is pending", text)
		}
		cancel()
	}()
	spec := s.spec("trainer.tiny.a", 1)
	_, err := s.hub(time.Minute).Submit(ctx, spec, s.open, func(text string) { said <- text })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Submit: %v; expected that it was canceled", err)
	}
	for k, j := range s.cluster.jobs {
		select {
		case <-j.done:
		default:
			t.Errorf("job %s is left", k)
		}
	}
	if Placed(spec.Dir) {
		t.Error("a record of the job is left")
	}
}

// greeter listens on loopback and answers each line with its own name.
func greeter(t *testing.T, name, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintf(c, "%s heard %s\n", name, lines.Text())
				}
			}()
		}
	}()
	return l
}

func ask(t *testing.T, address string) (string, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintln(c, "hello")
	return bufio.NewReader(c).ReadString('\n')
}

func TestABlockReachesAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	a, b := s.submit(h, "environment.tiny.a"), s.submit(h, "trainer.tiny.b")
	target := greeter(t, "b", "127.0.0.1:0").Addr().String()
	address, err := h.Reach(s.ctx, "environment.tiny.a", "trainer.tiny.b", target)
	if err != nil {
		t.Fatalf("Reach: %v", err)
	}
	if address == target { // both are on this machine, where the port is taken
		t.Fatalf("the address is that of the target itself")
	}
	if said, err := ask(t, address); said != "b heard hello\n" {
		t.Errorf("through the agents: %q, %v", said, err)
	}
	again, err := h.Reach(s.ctx, "environment.tiny.a", "trainer.tiny.b", target)
	if again != address || err != nil {
		t.Errorf("asked again, the address is %s, %v; expected %s", again, err, address)
	}
	own, err := h.Reach(s.ctx, "trainer.tiny.b", "trainer.tiny.b", target)
	if own != target || err != nil {
		t.Errorf("a block reaches itself at %s, %v; expected %s", own, err, target)
	}

	// Of the run's members only those get through that the engine allows, and only to what it has named.
	intruder, err := h.authority.issue("other.agent")
	if err != nil {
		t.Fatal(err)
	}
	via, err := b.peer.via()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		credentials agent.Credentials
		target      string
	}{
		"another member":   {intruder, target},
		"another address":  {credentialsOf(t, a), "127.0.0.1:1"},
		"another machine":  {credentialsOf(t, a), "192.0.2.1:80"},
		"without a target": {credentialsOf(t, a), ""},
	} {
		if said := open(t, c.credentials, b.peer.name, via[0], c.target); !strings.Contains(said, "not allowed") {
			t.Errorf("%s: %q; expected a refusal", what, said)
		}
	}
	if said := open(t, credentialsOf(t, a), b.peer.name, via[0], target); strings.Contains(said, "error") {
		t.Errorf("the member that is allowed gets %q", said)
	}

	stranger, err := openAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own2, err := stranger.issue(a.peer.name)
	if err != nil {
		t.Fatal(err)
	}
	own2.Authority = h.authority.pair.Certificate // it believes the server; the server must not believe it
	if said := open(t, own2, b.peer.name, via[0], target); !strings.Contains(said, "certificate") {
		t.Errorf("a member of another run gets %q; expected that its certificate is refused", said)
	}
}

func credentialsOf(t *testing.T, j *Job) agent.Credentials {
	t.Helper()
	b, err := agent.ReadBootstrap(bootstrapPath(j.dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	return b.Credentials
}

// open opens a connection to an agent's port for other agents, and returns its answer or error.
func open(t *testing.T, c agent.Credentials, name, address, target string) string {
	t.Helper()
	config, err := c.Config(name)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, config)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "{\"target\":%q}\n", target)
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return said
}

func TestARouteFollowsABlockToItsNextJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	s.submit(h, "environment.tiny.a")
	old := s.submit(h, "trainer.tiny.b")
	target := greeter(t, "b", "127.0.0.1:0").Addr().String()
	address, err := h.Reach(s.ctx, "environment.tiny.a", "trainer.tiny.b", target)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.End(s.ctx); err != nil {
		t.Fatalf("End: %v", err)
	}
	if said, err := ask(t, address); err == nil {
		t.Errorf("while the block has no job, its address answers %q", said)
	}
	spec := s.spec("trainer.tiny.b", 2)
	next, err := h.Submit(s.ctx, spec, s.open, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cluster.Cancel(context.Background(), next.record.Handle, 0) })
	for {
		said, err := ask(t, address)
		if said == "b heard hello\n" {
			return
		}
		if s.ctx.Err() != nil {
			t.Fatalf("the address does not lead to the next job: %q, %v", said, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A connection that goes by an address at which the other agent is reached no more would be silent for minutes.
func TestAConnectionByAnAddressThatIsGoneEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	a, b := s.submit(h, "environment.tiny.a"), s.submit(h, "trainer.tiny.b")
	target := greeter(t, "b", "127.0.0.1:0").Addr().String()
	// Not by Reach: the hub would know the route, and lead it the shorter way once more when an agent has connected.
	exposure := agent.Exposure{Target: target, Block: "environment.tiny.a", Name: a.peer.name}
	if err := b.peer.do(s.ctx, func(c *agent.Client) error { return c.Expose(s.ctx, exposure) }); err != nil {
		t.Fatal(err)
	}
	via, err := b.peer.via()
	if err != nil {
		t.Fatal(err)
	}
	through := detour(t, via[0])
	lead := func(via ...string) (address string) {
		t.Helper()
		err := a.peer.do(s.ctx, func(c *agent.Client) (err error) {
			forward := agent.Forward{Block: "trainer.tiny.b", Target: target, Via: via, Name: b.peer.name}
			address, err = c.Forward(s.ctx, forward)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	address := lead(through)
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	heard := func() (string, error) {
		fmt.Fprintln(c, "hello")
		return in.ReadString('\n')
	}
	if said, err := heard(); said != "b heard hello\n" {
		t.Fatalf("by the detour: %q, %v", said, err)
	}
	lead(via[0], through) // a further address changes nothing for it
	if said, err := heard(); said != "b heard hello\n" {
		t.Fatalf("when there was a shorter way, too: %q, %v", said, err)
	}
	lead(via[0])
	if said, err := heard(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("when the detour was gone: %q, %v; expected that the connection has ended", said, err)
	}
	if said, err := ask(t, address); said != "b heard hello\n" {
		t.Errorf("by the shorter way: %q, %v", said, err)
	}
}

// detour is a further address of a listener.
func detour(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			other, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go agent.Splice(c, other)
		}
	}()
	return l.Addr().String()
}
