package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// box starts programs in sandboxes.
type box struct {
	sandbox *sandbox.Sandbox
	forward *sandbox.Forwarder // nil: they have the network of this machine
	spec    sandbox.Spec       // what all rollouts have in common
	folder  string             // of the files of /etc
	log     func(level, message string)
}

// Where a program in a sandbox has its rollout's folder: at the same place in each, so that a model sees no difference.
const rollout = "/rollout"

// openBox finds a way of making sandboxes, and what the program needs in one; nil: the block wants none.
func openBox(ctx context.Context, l *launcher, python, gateway string, s setting) (b *box, err error) {
	c := s.Sandbox
	if c.Kind == sandbox.None {
		return nil, nil
	}
	b = &box{log: s.log, folder: filepath.Join(s.dir, "sandbox")}
	if b.sandbox, err = sandbox.Probe(ctx, exec.LookPath); err != nil {
		return nil, &sdk.Error{Summary: fmt.Sprintf("sandbox { kind = %q }", c.Kind), Err: err, Final: true,
			Remedy: sandbox.Remedy}
	}
	b.spec = sandbox.Spec{Files: b.folder, Network: slices.Contains(c.Network, "*"), Tmp: gibibytes(c.Tmp),
		Dir: (&place{rollout}).work(), Grace: killGrace, Output: maxLog,
		Limits: inside.Limits{Memory: gibibytes(c.Memory), Processes: int(c.Processes), FileSize: gibibytes(c.FileSize),
			Disk: gibibytes(c.Disk), Files: mostEntries, Free: leaveFree, OpenFiles: int(c.OpenFiles),
			CPU: time.Duration(c.CPU * float64(time.Second))}}
	if err := b.environment(ctx, l, python, s); err != nil {
		return nil, err
	}
	var hosts []string
	if gateway != "" && (!b.spec.Network || s.tasksDecide) {
		if b.forward, err = sandbox.Forward(gateway); err != nil {
			return nil, &sdk.Error{Summary: "programs in sandboxes cannot reach the model", Err: err, Final: true,
				Remedy: `let the inference block serve under a name, or write sandbox { network = ["*"] }`}
		}
		b.spec.Gateway = b.forward.Gateway()
		hosts = b.spec.Gateway.Hosts()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
			b = nil
		}
	}()
	if err := sandbox.WriteFiles(b.folder, hosts...); err != nil {
		return nil, err
	}
	if err := b.check(ctx, l); err != nil {
		return nil, err
	}
	network := "no network but the model's gateway"
	if gateway == "" {
		network = "no network"
	}
	if b.spec.Network {
		network = "the network of this machine"
	}
	b.log("info", fmt.Sprintf("programs run in bubblewrap: %s; of this machine they read %s", network, b.reads()))
	return b, nil
}

const (
	mostEntries = 500_000   // files and folders of a rollout: each takes time to remove
	leaveFree   = 256 << 20 // bytes of the disk, for the run and others
)

func gibibytes(n float64) int64 { return int64(n * (1 << 30)) }

// check looks whether the program can be started in a sandbox.
func (b *box) check(ctx context.Context, l *launcher) error {
	spec := b.spec
	spec.Argv, spec.Dir, spec.Check = []string{l.argv[0]}, "/", true
	report, err := b.sandbox.Run(ctx, spec)
	if err == nil && report.Failed == "" {
		return nil
	}
	if err == nil {
		err = errors.New(report.Failed)
	}
	return &sdk.Error{Summary: fmt.Sprintf("the program %s does not start in a sandbox", l.argv[0]), Err: err, Final: true,
		Remedy: "name the folder in which it is installed in sandbox { paths = [...] }"}
}

// environment finds what the program needs to read, and changes what its variables say of this machine.
func (b *box) environment(ctx context.Context, l *launcher, python string, s setting) error {
	r := &sandbox.Readable{Env: l.env, Hidden: []string{s.dir, s.recipeDir}}
	if home, err := os.UserHomeDir(); err == nil {
		r.Hidden = append(r.Hidden, home)
	}
	found, err := r.Program(ctx, python)
	if err == nil && found != python {
		l.env["PATH"] = filepath.Dir(found) + string(os.PathListSeparator) + l.env["PATH"]
	}
	if err == nil {
		l.argv[0], err = r.Program(ctx, l.argv[0])
	}
	if err != nil {
		return &sdk.Error{Summary: "the program cannot run in a sandbox", Err: err, Final: true,
			Remedy: `install it in a folder of its own, or write sandbox { kind = "none" }`}
	}
	for _, folder := range filepath.SplitList(l.env["LD_LIBRARY_PATH"]) { // as modules of a cluster set it
		r.Add(folder)
	}
	for _, file := range programFiles(l, s) {
		r.Add(file)
	}
	for i, path := range s.Sandbox.Paths {
		whole := path
		if !filepath.IsAbs(path) {
			whole = filepath.Join(s.recipeDir, path)
		}
		real, err := filepath.EvalSymlinks(whole)
		if err == nil && (s.refuses(real) || !r.Add(whole)) {
			err = errors.New("it holds the run's own files, the tasks, the recipe or your home folder as a whole: name what " +
				"the program needs of it")
		}
		if err != nil {
			return &sdk.Error{Summary: fmt.Sprintf("sandbox.paths[%d], %q, cannot be shown", i, path), Err: err, Final: true,
				Remedy: "name a file or folder that is there"}
		}
	}
	covers, err := b.covers(s.answers(r.Path), r.Mounts())
	if err != nil {
		return err
	}
	b.spec.Mounts = append(r.Mounts(), covers...)
	env := l.env
	for name := range env {
		proxy := strings.HasSuffix(strings.ToLower(name), "_proxy") && !b.spec.Network
		if _, own := l.own[name]; !own && (proxy || strings.HasPrefix(name, "XDG_") || name == "HOME") {
			delete(env, name)
		}
	}
	if _, own := l.own["HOME"]; !own {
		env["HOME"] = (&place{rollout}).home()
	}
	if _, set := env["PYTHONUSERBASE"]; !set && r.UserBase != "" {
		env["PYTHONUSERBASE"] = r.UserBase
	}
	return nil
}

// covers puts something empty in place of files and folders that would be seen with what is around them.
func (b *box) covers(answers []string, shown []sandbox.Mount) ([]sandbox.Mount, error) {
	file, folder := filepath.Join(b.folder, "empty"), filepath.Join(b.folder, "nothing")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		return nil, fmt.Errorf("write the files of a sandbox: %w", err)
	}
	var out []sandbox.Mount
	for _, path := range answers {
		info, err := os.Stat(path)
		in := func(m sandbox.Mount) bool { return sandbox.Below(path, m.Inside) }
		if err != nil || !slices.ContainsFunc(shown, in) && !slices.ContainsFunc(sandbox.SystemFolders(),
			func(system string) bool { return sandbox.Below(path, system) }) {
			continue
		}
		empty := file
		if info.IsDir() {
			empty = folder
		}
		out = append(out, sandbox.Mount{Host: empty, Inside: path})
	}
	return out, nil
}

// reads lists what the program reads of this machine, for the log.
func (b *box) reads() string {
	out := []string{"the system's folders"}
	for _, m := range b.spec.Mounts {
		if m.Host == m.Inside {
			out = append(out, m.Host)
		}
	}
	return strings.Join(out, ", ")
}

// Close ends the way to the gateway.
func (b *box) Close() error {
	if b == nil || b.forward == nil {
		return nil
	}
	return b.forward.Close()
}

// scene is what the sandbox of one task has beside what all have.
type scene struct {
	dir       string // where the program starts; empty: its own folder
	mounts    []sandbox.Mount
	env       map[string]string
	memory    int64 // bytes; 0: as much as all have
	noNetwork bool  // of the task
}

// spec is that of a sandbox of a task.
func (b *box) specOf(has scene, limit time.Duration) sandbox.Spec {
	spec := b.spec
	// What the program needs of this machine lies over what a task has.
	spec.Timeout, spec.Mounts = limit, slices.Concat(has.mounts, spec.Mounts)
	spec.Network = spec.Network && !has.noNetwork
	if has.dir != "" {
		spec.Dir = has.dir
	}
	if has.memory > 0 {
		spec.Limits.Memory = min(spec.Limits.Memory, has.memory)
	}
	return spec
}

// run runs the program of one rollout.
func (b *box) run(ctx context.Context, l *launcher, p *place, t *task, s *environment.Session, limit time.Duration,
	has scene) (*ended, error) {
	seen := &place{rollout}
	spec := b.specOf(has, limit)
	baseURL := s.BaseURL
	if !spec.Network {
		baseURL = spec.Gateway.URL(baseURL)
	}
	argv, env, err := l.command(p, seen, t, baseURL, s.Key, has.env)
	if err == nil {
		err = os.MkdirAll(p.home(), 0o700)
	}
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	env["TMPDIR"] = "/tmp"
	if b.forward != nil && !spec.Network {
		way, err := b.forward.Open()
		if err != nil {
			return nil, &environment.InfraFailed{Err: err}
		}
		defer func() { _ = way.Close() }()
		spec.Gateway = way.Gateway()
	}
	spec.Argv = argv
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: p.work(), Inside: seen.work(), Writable: true},
		sandbox.Mount{Host: p.home(), Inside: seen.home(), Writable: true},
		sandbox.Mount{Host: p.task(), Inside: seen.task()})
	out, err := b.start(ctx, logName, p, spec, env)
	if err != nil {
		return nil, err
	}
	if err := b.tidy(ctx, p, seen); err != nil { // nobody reads the folder then
		return nil, fmt.Errorf("%w; its last lines: %s", err, strings.TrimSpace(out.tail))
	}
	return out, nil
}

// start runs a program in a sandbox of its own to its end. Its output goes to the log of this name.
func (b *box) start(ctx context.Context, name string, p *place, spec sandbox.Spec, env map[string]string) (*ended,
	error) {
	limit := spec.Timeout
	whole, err := b.sandbox.Command(spec)
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	reporter, err := sandbox.NewReporter()
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	defer reporter.Close()
	began := time.Now()
	program, err := start(ctx, name, p, whole, env, reporter.File())
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit + killGrace + overdue)
	defer timer.Stop()
	late := false
	select {
	case <-program.Done():
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	took := time.Since(began)
	stopped := program.Stop(ctx, 0)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), stopped)
	}
	if stopped != nil {
		return nil, &environment.InfraFailed{Err: stopped}
	}
	report, err := reporter.Report()
	if err == nil && report.Failed != "" {
		err = errors.New(report.Failed)
	}
	if late {
		report, err = &inside.Report{Late: true}, nil
	}
	tail := program.Tail(tailLines)
	if err != nil {
		return nil, &environment.InfraFailed{Err: fmt.Errorf("run the program in a sandbox: %w; its last lines: %s", err,
			strings.TrimSpace(tail))}
	}
	return endOf(report, limit, took, tail), nil
}

// overdue is how long a sandbox may take to end after its time.
const overdue = 5 * time.Second

// tidy makes the program's folder safe for the reward function, and its home for people who look at what is kept.
func (b *box) tidy(ctx context.Context, p, seen *place) error {
	ctx, cancel := context.WithTimeout(ctx, tidyWithin)
	defer cancel()
	removed, err := sandbox.Tidy(ctx, p.work(), seen.work())
	if err == nil {
		_, err = sandbox.Tidy(ctx, p.home(), seen.home())
	}
	if removed > 0 {
		b.log("info", fmt.Sprintf("removed what a program had left: %d links out of its folder, pipes or sockets", removed))
	}
	return err
}

// tidyWithin is long: a program may leave many files.
const tidyWithin = 2 * time.Minute

// endOf is how a program ended.
func endOf(report *inside.Report, limit, took time.Duration, tail string) *ended {
	out := &ended{late: report.Late, took: took, tail: tail, code: report.Exit}
	switch {
	case report.Late:
		out.how = fmt.Sprintf("ended by recipe when its time of %s was over", limit)
	case report.Limit != "":
		out.how = "ended at a limit of its sandbox: " + report.Limit
	case report.Exit != nil:
		out.how = fmt.Sprintf("exit code %d", *report.Exit)
	default:
		out.how = "signal: " + report.Signal
	}
	return out
}
