package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/harness"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
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
	version, err := h.Installed(ctx, f.harness.python)
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
	pin, err := l.pin(ctx, file, served.ControlURL)
	if err != nil {
		return a.orTimedOut(ctx, err, args[0], f.timeout)
	}
	defer pin.Close()
	result := view.Harness{V: view.HarnessVersion, Harness: h.Name, Version: version, Policy: l.policy,
		Tasks: f.harness.tasks, Limit: f.limit, Folder: folder, Time: time.Now().UTC()}
	fmt.Fprintf(a.err, "%s runs; what it prints is in %s\n", h.Name, h.Log(folder))
	err = h.Run(ctx, harness.Call{Python: f.harness.python, Environ: a.environ, Folder: folder, Pin: pin,
		Policy: harness.Policy{BaseURL: served.BaseURL, Key: served.APIKey, Model: served.Model,
			Tokenizer: served.Tokenizer},
		Options: harness.Options{Tasks: f.harness.tasks, Limit: f.limit, Concurrency: f.harness.concurrency,
			Chat: f.harness.chat, Extra: args[1:]}})
	if err != nil {
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

// pin keeps the policy version of a live run; nil: the policy does not change.
func (l *lone) pin(ctx context.Context, file, url string) (*harness.Pin, error) {
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
	p, err := harness.NewPin(ctx, url, token)
	if err != nil {
		return nil, &sdk.Error{Summary: "the policy version of the live run cannot be kept", Err: err,
			Remedy: "stop the run (recipe stop), then the same command evaluates its newest checkpoint"}
	}
	l.version = int64(p.Version())
	return p, nil
}
