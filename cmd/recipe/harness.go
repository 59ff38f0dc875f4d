package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/harness"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/proxy"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// harnessFlags are the flags of evaluate that count with --harness only.
type harnessFlags struct {
	name        string
	tasks       []string
	python      string
	concurrency int
	chat        bool
}

// harnessNames are the names of those flags but --harness itself.
var harnessNames = []string{"tasks", "python", "concurrency", "chat"}

func (f *harnessFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "harness", "", "evaluate with this `PROGRAM`: "+strings.Join(harness.Names(), " or "))
	cmd.Flags().StringSliceVar(&f.tasks, "tasks", nil, "the `TASKS` of the harness, as it names them")
	cmd.Flags().StringVar(&f.python, "python", "python3", "the `PYTHON` in which the harness is installed")
	cmd.Flags().IntVar(&f.concurrency, "concurrency", 16, "requests of the harness at once")
	cmd.Flags().BoolVar(&f.chat, "chat", false, "lm-eval: send messages, which the model's chat template renders")
}

// runHarness evaluates an inference block with a program of others.
func (a *app) runHarness(cmd *cobra.Command, args []string, f *evaluateFlags) (err error) {
	h := harness.Find(f.harness.name)
	switch {
	case h == nil:
		return fmt.Errorf("--harness %q: expected %s", f.harness.name, strings.Join(harness.Names(), " or "))
	case len(f.harness.tasks) == 0:
		return fmt.Errorf("--harness needs --tasks, for example --tasks gsm8k")
	case f.harness.concurrency < 1 || f.limit < 0 || f.timeout <= 0:
		return fmt.Errorf("--concurrency must be at least 1, --limit at least 0, --timeout more than 0")
	}
	file, err := recipeOrRun(f.blockFlags.file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, errTryTimeout)
	defer cancel()
	version, err := harnessVersion(ctx, h, f.harness.python)
	if err != nil {
		return err
	}
	folder, err := a.harnessFolder(file, h, f)
	if err != nil {
		return err
	}
	l, declared, err := a.prepareServer(ctx, &f.vars, file, args[0], &f.policy)
	if err != nil {
		return a.orTimedOut(ctx, err, args[0], f.timeout)
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	var served outputs.Inference
	given := spec.Ref{Address: declared.Addr.String(), Values: l.blocks.Outputs()[declared.Addr]}
	if err := given.Decode(&served); err != nil {
		return err
	}
	result := view.Harness{V: view.HarnessVersion, Harness: h.Name, Version: version, Policy: l.policy,
		Tasks: f.harness.tasks, Limit: f.limit, Folder: folder, Time: time.Now().UTC()}
	o := harness.Options{Tasks: f.harness.tasks, Limit: f.limit, Concurrency: f.harness.concurrency, Chat: f.harness.chat,
		Extra: args[1:]}
	pinned, err := a.pin(ctx, file, l, served.ControlURL)
	if err != nil {
		return err
	}
	if pinned != nil {
		defer pinned.Close()
	}
	door, err := openDoor(served.BaseURL, served.APIKey)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, door.close()) }()
	argv, environ := h.Command(f.harness.python, harness.Policy{BaseURL: door.url, Key: door.key,
		Model: served.Model, Tokenizer: served.Tokenizer}, o, folder)
	if err := a.runProgram(ctx, h, argv, environ, folder, pinned); err != nil {
		return a.orTimedOut(ctx, err, args[0], f.timeout)
	}
	result.Seconds = time.Since(result.Time).Seconds()
	if l.version >= 0 {
		result.PolicyVersion = &l.version
	}
	if result.Scores, err = h.Results(os.DirFS(folder)); err != nil {
		return err
	}
	if err := result.Save(ctx); err != nil {
		return err
	}
	if f.json {
		return view.JSON(a.out, result)
	}
	return result.Show(a.out, a.style())
}

// harnessVersion is the version of an installed harness.
func harnessVersion(ctx context.Context, h *harness.Harness, python string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dist, _, _ := strings.Cut(h.Package, " ")
	dist, _, _ = strings.Cut(dist, "[")
	cmd := exec.CommandContext(ctx, python, "-c",
		"import sys, importlib.util as u, importlib.metadata as m\n"+
			"print(m.version(sys.argv[2]) if u.find_spec(sys.argv[1]) else '')", h.Module, dist)
	cmd.WaitDelay = time.Second
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	version := strings.TrimSpace(out.String())
	if err == nil && version != "" {
		return version, nil
	}
	words := strings.Fields(h.Package)
	for i, w := range words {
		words[i] = printable.ShellWord(w)
	}
	e := &sdk.Error{Summary: fmt.Sprintf("%s does not have %s", python, h.Name),
		Remedy: fmt.Sprintf("install it (%s -m pip install %s), or name the Python that has it: --python PATH", python,
			strings.Join(words, " "))}
	if err != nil {
		e.Err, e.Detail = err, failure.String()
	}
	return "", e
}

// harnessFolder is the folder into which the harness writes: --out, else one in the recipe's run directory. It does not
// exist, or is empty.
func (a *app) harnessFolder(file string, h *harness.Harness, f *evaluateFlags) (string, error) {
	folder := f.out
	if folder == "" {
		dir, _, err := locateRun(file)
		if err == nil {
			err = dir.Check()
		}
		if err != nil {
			return "", &sdk.Error{Summary: "the recipe has no run that could keep the results", Err: err,
				Remedy: "name a folder for them: --out FOLDER"}
		}
		folder = filepath.Join(string(dir), "harness", time.Now().UTC().Format("20060102T150405.000Z")+"."+h.Name)
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("list the folder of the results: %w", err)
	}
	if len(entries) > 0 {
		return "", &sdk.Error{Summary: fmt.Sprintf("the folder %s is not empty: its files would count as results", folder),
			Remedy: "name another one: --out FOLDER"}
	}
	return folder, nil
}

// prepareServer loads the recipe, and finds or starts the policy in place of its inference block at an address.
func (a *app) prepareServer(ctx context.Context, vars *recipeFlags, file, address string, f *policyFlags) (l *lone,
	declared *schema.Block, err error) {
	at, err := addr.Parse(address)
	if err == nil && at.Kind != kind.Inference {
		err = fmt.Errorf("%s is a block of kind %s; with --harness expected an inference block, for example "+
			"inference.vllm.policy", at, at.Kind)
	}
	if err != nil {
		return nil, nil, err
	}
	r, declared, err := a.blockOf(vars, file, at)
	if err != nil {
		return nil, nil, err
	}
	if l, err = a.newLone(r, declared, f); err != nil {
		return nil, nil, err
	}
	if err = a.findPolicy(ctx, l, declared, file, f); err != nil {
		return nil, nil, errors.Join(err, l.close(ctx))
	}
	return l, declared, nil
}

const (
	harnessKeep  = 45 * time.Second // lease by which weight updates wait
	harnessRenew = 10 * time.Second
	// a sync block that has seen no lease begins its update within harnessBegin, and ends it within harnessSettle
	harnessBegin  = 2 * time.Second
	harnessSettle = 10 * time.Minute
)

// pinned keeps the policy version of a live run.
type pinned struct {
	*gateway.Client
	id      string
	version int
}

// pin asks a live run that its weight updates wait; nil: the policy does not change.
func (a *app) pin(ctx context.Context, file string, l *lone, url string) (*pinned, error) {
	if l.ofRun == (addr.Block{}) {
		return nil, nil
	}
	dir, rec, err := locateRun(file)
	if err != nil {
		return nil, err
	}
	token, err := dir.Token("control", l.ofRun, rec.Blocks[l.ofRun].Renewals)
	if err != nil {
		return nil, err
	}
	p := &pinned{Client: gateway.NewClient(url, token), id: "harness." + rand.Text()}
	kept, err := p.settled(ctx)
	if err != nil {
		p.Close()
		return nil, &sdk.Error{Summary: "the policy version of the live run cannot be kept", Err: err,
			Remedy: "stop the run (recipe stop), then the same command evaluates its newest checkpoint"}
	}
	p.version, l.version = kept.Version, int64(kept.Version)
	return p, nil
}

// settled asks for the lease, and waits for an update that had begun before.
func (p *pinned) settled(ctx context.Context) (kept gateway.Kept, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, harnessSettle, fmt.Errorf("a weight update has not ended after %s",
		harnessSettle))
	defer cancel()
	for {
		if _, err := p.Keep(ctx, p.id, harnessKeep, nil); err != nil {
			return kept, errors.Join(context.Cause(ctx), err)
		}
		select {
		case <-ctx.Done():
			return kept, context.Cause(ctx)
		case <-time.After(harnessBegin):
		}
		status, err := p.Status(ctx)
		if err != nil {
			return kept, errors.Join(context.Cause(ctx), err)
		}
		if !status.Held {
			return p.Keep(ctx, p.id, harnessKeep, nil)
		}
	}
}

// check renews the lease. The version must be the same.
func (p *pinned) check(ctx context.Context) error {
	kept, err := p.Keep(ctx, p.id, harnessKeep, nil)
	switch {
	case err != nil:
		return fmt.Errorf("keep the policy version: %w", err)
	case kept.Version != p.version:
		return &sdk.Error{Summary: fmt.Sprintf("the policy of the live run changed from version %d to %d", p.version,
			kept.Version), Detail: "Weight updates wait for an evaluation no longer than half the timeout of the sync block.",
			Remedy: "stop the run (recipe stop), then the same command evaluates its newest checkpoint; or evaluate less " +
				"(--limit N)"}
	}
	return nil
}

// Close ends the lease.
func (p *pinned) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = p.Keep(ctx, p.id, 0, nil) // it ends by itself
	p.Client.Close()
}

// door lets a harness reach the policy by a key of its own, which ends with it: harnesses print their requests.
type door struct {
	url, key string // url ends in /v1
	server   *http.Server
	served   chan error
}

func openDoor(base, key string) (*door, error) {
	to, err := url.Parse(strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1"))
	if err != nil {
		return nil, fmt.Errorf("the address of the policy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the harness: %w", err)
	}
	d := &door{url: "http://" + listener.Addr().String() + "/v1", key: rand.Text(), served: make(chan error, 1)}
	forward := &httputil.ReverseProxy{
		Transport: peer.Transport(base, &http.Transport{MaxIdleConnsPerHost: 64, Proxy: proxy.Of}),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
	}
	d.server = web.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Get("Authorization"); subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+d.key)) != 1 {
			http.Error(w, "wrong key", http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	go func() { d.served <- web.Serve(d.server, listener) }()
	return d, nil
}

func (d *door) close() error {
	err := d.server.Close()
	<-d.served
	return err
}

// runProgram runs the harness to its end. It is stopped when ctx ends, and when the policy version changes.
func (a *app) runProgram(ctx context.Context, h *harness.Harness, argv, environ []string, folder string,
	p *pinned) (err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of the results: %w", err)
	}
	log := filepath.Join(folder, h.Name+".log")
	fmt.Fprintf(a.err, "%s runs; what it prints is in %s\n", h.Name, log)
	program, err := proc.Start(ctx, proc.Spec{Name: h.Name, Argv: argv, LogDir: folder, Foreign: true,
		Env: append(slices.Clone(a.environ), environ...)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop(context.WithoutCancel(ctx), 10*time.Second)) }()
	tick := time.NewTicker(harnessRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if p != nil {
				if err := p.check(ctx); err != nil {
					return err
				}
			}
		case <-program.Done():
			if err := program.Err(); err != nil {
				return &sdk.Error{Summary: fmt.Sprintf("%s failed: %v", h.Name, err), Detail: program.Tail(20),
					Remedy: "read " + log}
			}
			if p != nil {
				return p.check(ctx)
			}
			return nil
		}
	}
}
