package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/single"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// policyFlags say which policy answers an environment that no run trains.
type policyFlags struct {
	policy, model, keyEnv string
	key                   string // of a URL, where no variable holds it
	at                    int64
	verbose               bool
	everywhere            bool // policy answers in place of every inference block, judges among them
}

func (f *policyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.policy, "policy", "", "the `POLICY` that answers: tiny, the address of an inference block, "+
		"or the URL of an OpenAI-compatible server (default: the inference block that the environment names, of the live "+
		"run if there is one, else started for this command)")
	cmd.Flags().Int64Var(&f.at, "at", session.Newest, "the `STEP` of the checkpoint whose weights answer, of the recipe's "+
		"run when it is not live; 0: the weights that the recipe names (default: the newest checkpoint, if there is one)")
	cmd.Flags().Lookup("at").DefValue = "0" // not shown: the text says it
	cmd.Flags().StringVar(&f.model, "model", "", "the model's `NAME` at a URL (default: the first that it lists)")
	cmd.Flags().StringVar(&f.keyEnv, "key-env", "",
		"the environment variable, `NAME`, that holds the key of a URL, for example OPENAI_API_KEY")
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "show the logs of the blocks that are started")
}

// lone is an environment that runs without a trainer, and what answers it.
type lone struct {
	recipe  *schema.Recipe
	block   *schema.Block
	blocks  *single.Blocks
	proxies []*single.Proxy
	says    *said // by the environment until it is ready
	dir     string
	remove  func() error // of dir
	policy  string       // for people
	version int64        // of the policy when it is one that a trainer has made; -1: none
	ofRun   addr.Block   // of the live run, whose policy answers and may be trained; zero: none
}

// environmentOf loads the recipe in file, and finds its environment at an address.
func (a *app) environmentOf(vars *recipeFlags, file, address string) (*schema.Recipe, *schema.Block, error) {
	at, err := addr.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	if at.Kind != kind.Environment {
		return nil, nil, fmt.Errorf("%s is a block of kind %s; expected an environment, for example environment.NAME.NAME",
			at, at.Kind)
	}
	return a.blockOf(vars, file, at)
}

// blockOf loads the recipe in file, and finds a block of it.
func (a *app) blockOf(vars *recipeFlags, file string, at addr.Block) (*schema.Recipe, *schema.Block, error) {
	opts, err := vars.options(a, file)
	if err != nil {
		return nil, nil, err
	}
	opts.Planned = a.variablesOfRun(file)
	r, diags := schema.Load(file, opts)
	if diags.HasErrors() { // warnings are about a whole run
		return nil, nil, a.diagnose(r, diags, a.json)
	}
	a.sayVariables(r)
	block := r.Lookup(at)
	if block == nil {
		return nil, nil, fmt.Errorf("the recipe %s has no block %s; it has %s", file, at, blocksOf(r, at.Kind))
	}
	return r, block, nil
}

// prepareLone loads the recipe and gets everything ready that the environment refers to, but not the environment.
func (a *app) prepareLone(ctx context.Context, vars *recipeFlags, file, address string, f *policyFlags) (l *lone,
	err error) {
	r, block, err := a.environmentOf(vars, file, address)
	if err != nil {
		return nil, err
	}
	if l, err = a.newLone(r, block, f); err != nil {
		return nil, err
	}
	if err := a.neighbors(ctx, l, file, f); err != nil {
		return nil, errors.Join(err, l.close(ctx))
	}
	return l, nil
}

// newLone is for a block of a recipe.
func (a *app) newLone(r *schema.Recipe, block *schema.Block, f *policyFlags) (*lone, error) {
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	l := &lone{recipe: r, block: block, version: -1, says: &said{}}
	if l.dir, l.remove, err = temporary.Dir("", "recipe-try"); err != nil {
		return nil, err
	}
	report := a.reports(f.verbose)
	l.blocks = single.New(r, catalog, l.dir, a.environ, func(r single.Report) {
		if r.Block == block.Addr && !r.Ready && (r.Level == "info" || r.Level == "warn") {
			l.says.add(r.Message)
		}
		report(r)
	})
	return l, nil
}

// ofRunSource is the source of values that a run was applied with.
const ofRunSource = "the run"

// sayVariables names which values were taken from the run, to a person.
func (a *app) sayVariables(r *schema.Recipe) {
	var taken []string
	for _, v := range r.Variables {
		if v.Source == ofRunSource {
			taken = append(taken, v.Name+" = "+v.Argument())
		}
	}
	if len(taken) > 0 {
		fmt.Fprintf(a.err, "%s %s (--var gives another value)\n", a.errStyle().Dim("as in the run:"),
			strings.Join(taken, ", "))
	}
}

// variablesOfRun are the values of variables that the recipe's run was applied with, so that they need not be given
// again. Those that the environment of this command gives stand back behind it, as behind its flags; sensitive ones are
// not recorded.
func (a *app) variablesOfRun(file string) map[string]input.Planned {
	dir, _, err := locateRun(file)
	if err != nil { // it has none
		return nil
	}
	l, err := lineage.Read(filepath.Join(string(dir), lineage.FileName))
	if err != nil {
		return nil
	}
	maps.DeleteFunc(l.Variables, func(name string, v input.Planned) bool {
		return v.Secret || slices.ContainsFunc(a.environ, func(entry string) bool {
			return strings.HasPrefix(entry, "RECIPE_VAR_"+name+"=")
		})
	})
	for name, v := range l.Variables {
		v.Source = ofRunSource
		l.Variables[name] = v
	}
	return l.Variables
}

// blocksOf are the addresses of the blocks of a kind.
func blocksOf(r *schema.Recipe, of kind.Kind) string {
	var names []string
	for _, b := range r.Blocks {
		if b.Addr.Kind == of {
			names = append(names, b.Addr.String())
		}
	}
	if len(names) == 0 {
		return "no block of kind " + string(of)
	}
	return strings.Join(names, ", ")
}

// reports shows what blocks say: warnings and errors, or all of it.
func (a *app) reports(verbose bool) func(single.Report) {
	s := a.errStyle()
	return func(r single.Report) {
		if verbose || r.Level == "warn" || r.Level == "error" {
			fmt.Fprintf(a.err, "%s %s\n", s.Dim(r.Block.String()), r.Message)
		}
	}
}

// neighbors starts or finds the blocks that the environment refers to.
func (a *app) neighbors(ctx context.Context, l *lone, file string, f *policyFlags) error {
	for _, need := range l.block.Needs {
		declared := l.recipe.Lookup(need.On)
		switch {
		case need.On.Kind == kind.Trajectories:
			store := addr.Block{Kind: kind.Trajectories, Plugin: "builtin", Name: "try"}
			b, err := l.blocks.Run(ctx, store, emptyBody(a, store))
			if err != nil {
				return err
			}
			l.blocks.Give(need.On, conform(b.Outputs, declared))
		case need.On.Kind == kind.Inference && need.Attribute == "inference":
			if err := a.findPolicy(ctx, l, declared, file, f); err != nil {
				return err
			}
		case need.On.Kind == kind.Inference && f.everywhere:
			if err := a.remotePolicy(ctx, l, declared, f); err != nil {
				return err
			}
		case need.On.Kind == kind.Inference: // a judge, say
			if err := a.recipesOwn(ctx, l, declared, file, f); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s refers to %s; an environment by itself can refer to inference blocks only", l.block.Addr,
				need.On)
		}
	}
	return nil
}

// findPolicy gives the environment the policy that the flags name.
func (a *app) findPolicy(ctx context.Context, l *lone, declared *schema.Block, file string, f *policyFlags) error {
	switch {
	case f.policy == "":
		l.policy = declared.Addr.String()
		return a.recipesOwn(ctx, l, declared, file, f)
	case strings.HasPrefix(f.policy, "http://"), strings.HasPrefix(f.policy, "https://"):
		return a.remotePolicy(ctx, l, declared, f)
	case f.policy == "tiny":
		tiny := addr.Block{Kind: kind.Inference, Plugin: "tiny", Name: "try"}
		l.policy = "the tiny model"
		b, err := l.blocks.Run(ctx, tiny, emptyBody(a, tiny))
		if err != nil {
			return err
		}
		l.blocks.Give(declared.Addr, conform(b.Outputs, declared))
		return nil
	}
	at, err := addr.Parse(f.policy)
	if err != nil {
		return fmt.Errorf("--policy %q: expected tiny, the address of an inference block, or a URL: %w", f.policy, err)
	}
	other := l.recipe.Lookup(at)
	if other == nil || at.Kind != kind.Inference {
		return fmt.Errorf("--policy %s: the recipe %s has no such inference block", at, file)
	}
	l.policy = at.String()
	if err := a.recipesOwn(ctx, l, other, file, f); err != nil {
		return err
	}
	l.blocks.Give(declared.Addr, conform(l.blocks.Outputs()[at], declared))
	return nil
}

// remotePolicy is a server at a URL.
func (a *app) remotePolicy(ctx context.Context, l *lone, declared *schema.Block, f *policyFlags) error {
	key := f.key
	if key == "" && f.keyEnv != "" {
		for _, entry := range a.environ {
			if value, ok := strings.CutPrefix(entry, f.keyEnv+"="); ok {
				key = value
			}
		}
		if key == "" {
			return fmt.Errorf("--key-env %s: this variable is not set", f.keyEnv)
		}
	}
	return l.byProxy(ctx, declared, f.policy, f.model, key)
}

// byProxy gives an inference block the outputs of a server at a URL, of which it is not known what it can.
func (l *lone) byProxy(ctx context.Context, declared *schema.Block, url, model, key string) error {
	proxy, err := single.NewProxy(ctx, url, model, key)
	if err != nil {
		return err
	}
	l.proxies, l.policy = append(l.proxies, proxy), url+" ("+proxy.Model()+")"
	control, token := proxy.Control()
	l.blocks.Give(declared.Addr, conform(cty.ObjectVal(map[string]cty.Value{
		"control_url": cty.StringVal(control), "control_token": cty.StringVal(token),
		"base_url": cty.StringVal(proxy.URL), "generate_url": cty.StringVal(strings.TrimSuffix(proxy.URL, "/v1")),
		"model": cty.StringVal(proxy.Model()), "api_key": cty.StringVal(proxy.Token),
		"tokenizer": cty.StringVal(proxy.Model()),
	}), declared))
	return nil
}

// recipesOwn takes an inference block of the live run, else it starts the block. A block of a live run that is not
// ready is an error: a second one beside it would compete for its GPUs, and would not have its weights.
func (a *app) recipesOwn(ctx context.Context, l *lone, b *schema.Block, file string, f *policyFlags) error {
	if b.Meta.External != nil {
		return l.external(ctx, b, f)
	}
	if dir, rec, err := locateRun(file); err == nil {
		if live, err := session.Dial(ctx, dir); err == nil {
			live.Close()
			switch recorded := rec.Blocks[b.Addr]; {
			case f.at != session.Newest:
				return &sdk.Error{Summary: fmt.Sprintf("--at: the run is live, and %s serves its newest weights", b.Addr),
					Remedy: "leave --at out, or stop the run first: recipe stop"}
			case recorded == nil: // the recipe has got it since
			case recorded.Phase == string(sdk.Ready):
				return l.live(dir, rec, b)
			default:
				return &sdk.Error{Summary: fmt.Sprintf("%s of the live run is %s, not ready", b.Addr, recorded.Phase),
					Remedy: "wait until recipe status shows it as ready, or name another policy, for example --policy tiny"}
			}
		}
	}
	weights, err := l.weights(b, f.at)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s no live run: it is started for this command, with the weights %s\n",
		a.errStyle().Dim(b.Addr.String()), weights)
	_, err = l.blocks.Start(ctx, b.Addr, nil)
	return err
}

// external takes an inference block that someone else runs, as the recipe says that it is reached.
func (l *lone) external(ctx context.Context, b *schema.Block, f *policyFlags) error {
	_, meta, err := l.blocks.Evaluate(b.Addr)
	if err != nil {
		return err
	}
	server, err := meta.External.Reach(b.Schema.Outputs, b.Addr.Kind)
	if err != nil {
		return fmt.Errorf("%s: %w", b.Addr, err)
	}
	if b.Addr.String() != l.policy { // a judge, say
		l.blocks.Give(b.Addr, server.Outputs)
		return nil
	}
	if f.at > 0 {
		return &sdk.Error{Summary: fmt.Sprintf("--at: %s is an external server, which serves its own weights", b.Addr),
			Remedy: "leave --at out, or name another policy: --policy ADDRESS"}
	}
	model := f.model
	if v := server.Outputs.GetAttr("model"); model == "" && !v.IsNull() {
		model = v.AsString()
	}
	err = l.byProxy(ctx, b, server.URL, model, server.Key)
	if meta.External.Endpoint.ContainsMarked() {
		if l.policy = b.Addr.String(); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), server.URL, "(sensitive)"))
		}
	}
	return err
}

// weights decides which weights an inference block that is started serves: those of a checkpoint of the recipe's run,
// else those that the recipe names. It returns words for people.
func (l *lone) weights(b *schema.Block, at int64) (string, error) {
	const named = "that the recipe names"
	if at == 0 {
		return named, nil
	}
	c, err := checkpointFor(l.recipe, b.Addr, at)
	if err != nil || c == nil {
		return named, err
	}
	p, err := servable(c)
	if err != nil {
		return "", err
	}
	l.blocks.Serve(b.Addr, p)
	if b.Addr.String() == l.policy {
		l.version = c.Version
		l.policy += fmt.Sprintf(" with the weights of step %d", c.Step)
	}
	return fmt.Sprintf("of %s after step %d (%s)", c.Address, c.Step, c.Path), nil
}

// live takes a ready inference block of the live run.
func (l *lone) live(dir state.Dir, rec *state.Run, b *schema.Block) error {
	outputs, err := single.Running(dir, rec, b.Addr, b.Schema)
	if err != nil {
		return err
	}
	l.blocks.Give(b.Addr, outputs)
	if b.Addr.String() == l.policy {
		l.version, l.ofRun = rec.Policy.Version, b.Addr
		l.policy += " of the live run"
	}
	return nil
}

// emptyBody is the body of a block that sets nothing.
func emptyBody(a *app, at addr.Block) cty.Value {
	values := map[string]cty.Value{}
	catalog, err := a.catalog()
	if err != nil {
		return cty.EmptyObjectVal
	}
	p, err := catalog.Lookup(at.Kind, at.Plugin)
	if err != nil || p == nil {
		return cty.EmptyObjectVal
	}
	for _, attribute := range p.Config.Attributes {
		values[attribute.Name] = cty.NullVal(attribute.Type)
	}
	for _, b := range p.Config.Blocks {
		values[b.Name] = cty.NullVal(b.Type())
	}
	return cty.ObjectVal(values)
}

// conform gives outputs the form that those of a declared block have; what is missing is null.
func conform(given cty.Value, declared *schema.Block) cty.Value {
	have, out := given.AsValueMap(), map[string]cty.Value{}
	for _, at := range declared.Schema.Outputs.Attributes {
		out[at.Name] = cty.NullVal(at.Type)
		if v, ok := have[at.Name]; ok && v.Type().Equals(at.Type) {
			out[at.Name] = v
		}
	}
	return cty.ObjectVal(out)
}

// close ends what was started.
func (l *lone) close(ctx context.Context) error {
	err := l.blocks.Close(context.WithoutCancel(ctx))
	for _, proxy := range l.proxies {
		err = errors.Join(err, proxy.Close())
	}
	return errors.Join(err, l.remove())
}
