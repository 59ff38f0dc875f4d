package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/single"
	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// complianceCommand is the first argument of the process that runs the suite; people do not call it.
const complianceCommand = "plugin-compliance"

// complianceRequest goes to that process's standard input.
type complianceRequest struct {
	File     string                 `json:"file,omitempty"`
	Block    string                 `json:"block,omitempty"`
	Run      string                 `json:"run,omitempty"`
	Vars     map[string]input.Value `json:"vars,omitempty"`
	VarFiles []string               `json:"var_files,omitempty"`
	Opened   map[string][]byte      `json:"opened,omitempty"`
	Set      []string               `json:"set,omitempty"`
}

func (f *checkFlags) encode() (string, error) {
	if _, err := regexp.Compile(f.run); err != nil {
		return "", fmt.Errorf("--run: %w", err)
	}
	vars, err := variables(f.vars.vars)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(complianceRequest{File: f.file, Block: f.block, Run: f.run, Vars: vars,
		VarFiles: f.vars.varFiles, Opened: f.vars.read(), Set: f.vars.settings})
	return string(data), err
}

// runCompliance runs the suite as `go test -v` does, and does not return.
func runCompliance(c *compliance) {
	os.Args = []string{"plugin-test", "-test.v=true", "-test.timeout=0", "-test.paniconexit0=false"}
	if c.request.Run != "" {
		os.Args = append(os.Args, "-test.run=^Compliance$/("+strings.ReplaceAll(c.request.Run, " ", "_")+")")
	}
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: "Compliance", F: c.run}}, nil, nil)
}

// compliance is one plugin under test and where its configuration comes from.
type compliance struct {
	request complianceRequest
	catalog *host.Catalog
	plugin  *schema.PluginSchema
	def     *sdk.Definition
	recipe  *schema.Recipe // nil: defaults alone
	block   *schema.Block
	environ []string
}

func newCompliance(a *app, path string) (*compliance, error) {
	c := &compliance{environ: a.environ}
	if err := json.NewDecoder(a.in).Decode(&c.request); err != nil {
		return nil, fmt.Errorf("read what to test: %w", err)
	}
	var err error
	if c.catalog, err = a.catalogOf(c.request.File); err != nil {
		return nil, err
	}
	if c.plugin, err = c.catalog.Add(path); err != nil {
		return nil, err
	}
	if err := c.describe(); err != nil {
		return nil, err
	}
	if c.request.File == "" {
		return c, c.defaultsSuffice()
	}
	r, diags := schema.Load(c.request.File, schema.Options{Vars: c.request.Vars, VarFiles: c.request.VarFiles,
		Opened: c.request.Opened, Set: c.request.Set, Environ: a.environ, Plugins: c.catalog})
	if diags.HasErrors() {
		return nil, a.diagnose(r, diags, a.json)
	}
	c.recipe = r
	c.block, err = c.chosen()
	return c, err
}

// describe starts the plugin once to learn its capabilities, which the cache of schemas does not hold.
func (c *compliance) describe() error {
	dir, err := os.MkdirTemp("", "describe")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), plugintest.Deadline)
	defer cancel()
	p, err := c.launch(ctx, dir, "describe")
	if err != nil {
		return err
	}
	d, err := p.Describe(ctx)
	if err == nil {
		c.def = &sdk.Definition{Kind: d.Kind, Name: d.Name, Version: d.Version, Summary: d.Summary, Schema: d.Config,
			Outputs: d.Outputs, Capabilities: d.Capabilities}
	}
	if ended := p.Exit(ctx); err == nil {
		err = ended
	}
	return err
}

func (c *compliance) launch(ctx context.Context, dir, address string) (*host.Plugin, error) {
	argv, env, err := c.catalog.Command(c.plugin.Kind, c.plugin.Name, c.plugin.Source)
	if err != nil {
		return nil, err
	}
	return host.Launch(ctx, host.LaunchSpec{Kind: c.plugin.Kind, Name: c.plugin.Name, RunID: "test-run", Block: address,
		Command: argv, Dir: dir,
		Env: append(c.catalog.Environment(c.plugin.Kind, c.plugin.Name, cty.NilVal, c.environ), env...)})
}

// Launch implements plugintest.Launch: the plugin runs as under an engine.
func (c *compliance) Launch(ctx context.Context, b *plugintest.Block) (pluginpb.PluginClient,
	func(context.Context) error, error) {
	p, err := c.launch(ctx, b.Dir, b.Address)
	if err != nil {
		return nil, nil, err
	}
	return p.Client(), p.Exit, nil
}

// chosen is the block of the recipe whose attributes are taken.
func (c *compliance) chosen() (*schema.Block, error) {
	var found []*schema.Block
	for _, b := range c.recipe.Blocks {
		if b.Addr.Kind == c.plugin.Kind && b.Addr.Plugin == c.plugin.Name &&
			(c.request.Block == "" || c.request.Block == b.Addr.String()) {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 0:
		return nil, c.noBlock()
	case 1:
		return found[0], nil
	}
	return nil, &sdk.Error{Summary: fmt.Sprintf("%s has %d %s %q blocks", c.request.File, len(found), c.plugin.Kind,
		c.plugin.Name), Remedy: "choose one: --block " + found[0].Addr.String()}
}

// defaultsSuffice names the attributes that only a recipe can give.
func (c *compliance) defaultsSuffice() error {
	var missing []string
	for _, at := range c.def.Schema.Attributes {
		if at.Required && len(at.References) == 0 {
			missing = append(missing, at.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &sdk.Error{Summary: fmt.Sprintf("%s %q needs values of %v, which have no default", c.plugin.Kind,
		c.plugin.Name, missing), Remedy: "name a recipe that sets them: recipe plugin test PATH -r FILE"}
}

// run is the test.
func (c *compliance) run(t *testing.T) {
	s := plugintest.Suite{
		Config:  func(t *testing.T) any { return c.among(t, 100_000).config },
		Options: []plugintest.Option{c.surroundings},
		Launch:  c.Launch,
	}
	switch c.plugin.Kind {
	case kind.Environment:
		s.Groups = func(t *testing.T) (any, *plugintest.Trajectories) {
			n := c.among(t, 100_000)
			return n.config, n.trajectories
		}
	case kind.Sync:
		s.Synced = func(t *testing.T) (any, *plugintest.Block, *plugintest.Block) {
			n := c.among(t, 3)
			return n.config, n.started[kind.Trainer], n.started[kind.Inference]
		}
	case kind.Executor:
		s.Executor = c.executor(t)
	default:
	}
	plugintest.Compliance(t, c.def, s)
}

// executor has the suite ask processes of the executor's program. Jobs use a folder beside the recipe, which the
// machines of its cluster share; without a recipe a temporary one.
func (c *compliance) executor(t *testing.T) (s plugintest.ExecutorSuite) {
	if c.recipe != nil {
		dir, err := filepath.Abs(c.recipe.Dir)
		if err == nil {
			s.Shared, err = os.MkdirTemp(dir, ".recipe-test-")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(s.Shared) })
	}
	s.Open = func(dir string) (executor.Executor, error) {
		x, err := c.catalog.NewExecutor(c.plugin.Name, c.among(t, 0).config, dir)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if err := x.Close(); err != nil {
				t.Errorf("end executor %q: %v", c.plugin.Name, err)
			}
		})
		return x, nil
	}
	return s
}

// surroundings sets what the recipe says about the block's process.
func (c *compliance) surroundings(r *pluginpb.StartRequest) {
	if c.recipe == nil {
		return
	}
	if dir, err := filepath.Abs(c.recipe.Dir); err == nil {
		r.RecipeDir = dir
	}
	about := single.Surroundings(c.block.Meta)
	r.Environment = about.Environment
	r.Runtime = &pluginpb.Runtime{Python: about.Runtime.Python, Requirements: about.Runtime.Requirements,
		Venv: about.Runtime.Venv}
	r.Placement = wire.EncodePlacement(about.Placement)
}

// neighbors are the blocks that a plugin under test refers to, and its configuration that refers to them.
type neighbors struct {
	config       cty.Value
	trajectories *plugintest.Trajectories
	started      map[kind.Kind]*plugintest.Block
}

// among starts the neighbors; a trainer among them makes so many steps.
func (c *compliance) among(t *testing.T, steps int64) neighbors {
	t.Helper()
	n := neighbors{started: map[kind.Kind]*plugintest.Block{}}
	references := map[kind.Kind]spec.Ref{}
	reference := func(k kind.Kind) spec.Ref {
		if r, ok := references[k]; ok {
			return r
		}
		switch k {
		case kind.Trajectories:
			n.trajectories = plugintest.FakeTrajectories(t, 256)
			n.trajectories.Feed(nil)
			references[k] = n.trajectories.Reference()
		case kind.Environment:
			references[k] = plugintest.Ref("environment.fake.test", k, outputs.Environment{Name: "test", GroupSize: 4})
		default:
			n.started[k] = c.neighbor(t, k, steps)
			references[k] = n.started[k].Reference()
		}
		return references[k]
	}
	value := c.defaults(reference)
	if c.recipe != nil {
		value = c.declared(t, reference)
	}
	attributes := value.AsValueMap()
	if c.def.Kind == kind.Environment && c.def.Schema.Attribute("drop_uninformative") != nil {
		attributes["drop_uninformative"] = cty.False // a tiny model's answers often have equal scores
	}
	n.config = cty.ObjectVal(attributes)
	return n
}

// neighbor starts a block that the plugin refers to: the real tiny model where text is sampled, fakes where weights
// move, since theirs can be told apart.
func (c *compliance) neighbor(t *testing.T, k kind.Kind, steps int64) *plugintest.Block {
	t.Helper()
	var b *plugintest.Block
	switch {
	case k == kind.Inference && c.def.Kind == kind.Sync:
		b = plugintest.Harness(t, plugintest.FakeInference())
		b.Start(plugintest.FakeConfig{})
	case k == kind.Inference:
		b = plugintest.Harness(t, tiny.Inference())
		b.Start(tiny.InferenceConfig{Model: tiny.BuiltIn, MaxBatch: 256})
	case k == kind.Trainer:
		b = plugintest.Harness(t, plugintest.FakeTrainer())
		b.Start(plugintest.FakeTrainerConfig{Steps: steps}, func(r *pluginpb.StartRequest) {
			r.SyncedBy = []string{string(c.def.Kind) + "." + c.def.Name + ".test"}
		})
	default:
		t.Fatalf("the suite has no %s block to refer to", k)
	}
	b.Ready()
	return b
}

// noBlock describes what the recipe lacks, and which blocks of the plugin it has.
func (c *compliance) noBlock() error {
	var have []string
	for _, b := range c.recipe.Blocks {
		if b.Addr.Kind == c.plugin.Kind && b.Addr.Plugin == c.plugin.Name {
			have = append(have, b.Addr.String())
		}
	}
	what := fmt.Sprintf("%s has no %s %q block", c.request.File, c.plugin.Kind, c.plugin.Name)
	if len(have) > 0 {
		return &sdk.Error{Summary: what + " at " + c.request.Block,
			Remedy: "let --block be one of its blocks: " + strings.Join(have, ", ")}
	}
	return &sdk.Error{Summary: what,
		Remedy: "name a recipe that uses the plugin, or leave --recipe out to test with the defaults"}
}

// defaults is a body with the references that are needed and nothing else.
func (c *compliance) defaults(reference func(kind.Kind) spec.Ref) cty.Value {
	body := map[string]cty.Value{}
	for _, at := range c.def.Schema.Attributes {
		body[at.Name] = cty.NullVal(at.Type)
		if len(at.References) == 0 || !at.Required && !slices.Contains(at.References, kind.Trajectories) {
			continue
		}
		value := reference(at.References[0]).Values
		if at.List {
			value = cty.TupleVal([]cty.Value{value})
		}
		body[at.Name] = value
	}
	for _, b := range c.def.Schema.Blocks {
		body[b.Name] = cty.NullVal(b.Type())
	}
	return cty.ObjectVal(body)
}

// declared is the body of the recipe's block. References to other blocks have the outputs of the suite's neighbors.
func (c *compliance) declared(t *testing.T, reference func(kind.Kind) spec.Ref) cty.Value {
	t.Helper()
	blocks := single.New(c.recipe, c.catalog, "", nil, nil)
	for _, need := range c.block.Needs {
		blocks.Give(need.On, conform(reference(need.On.Kind).Values, c.recipe.Lookup(need.On)))
	}
	value, _, err := blocks.Evaluate(c.block.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if !value.IsWhollyKnown() {
		t.Fatalf("%s: a value of the block depends on more than the blocks that it names", c.block.Addr)
	}
	return value
}

// serveCompliance is the process that checkPlugin starts.
func serveCompliance(a *app, args []string, stderr io.Writer) int {
	c, err := newCompliance(a, args[0])
	if err != nil {
		return exitCode(err, stderr, a.errStyle())
	}
	runCompliance(c)
	return exitFailed
}
