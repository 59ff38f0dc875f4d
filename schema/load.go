package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/schema/secret"
)

// maxReported is how many mistakes are reported of a recipe: each is shown with its place in the file.
const maxReported = 500

// Load reads, expands and checks the recipe at path: a .hcl file, or a folder with exactly one recipe in it. All
// errors are reported at once. With errors the recipe is incomplete, but its Files are set, so that the errors can be
// shown.
func Load(path string, opts Options) (*Recipe, hcl.Diagnostics) {
	file, err := parse.FindFile(path)
	var src []byte
	summary := "Recipe not found"
	if err == nil {
		err = readablePath(file)
		summary = "Recipe in a folder that cannot be used"
	}
	if err == nil {
		src, err = opts.readFile(file)
		summary = "Recipe not readable"
	}
	if err != nil {
		diags := hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: diagnostic.UpperFirst(err.Error()) +
			"."}}
		return &Recipe{File: path, Files: map[string]*hcl.File{}, Unread: diags, eval: nil}, diags
	}
	return LoadSource(file, src, opts)
}

// readablePath refuses a path that is no text: blocks get their folders over a protocol that carries UTF-8 only.
func readablePath(file string) error {
	whole, err := filepath.Abs(file)
	if err == nil && !utf8.ValidString(whole) {
		return fmt.Errorf("the path %q is not UTF-8, so it cannot be passed to blocks; rename what is written as "+
			`\x in it`, whole)
	}
	return err
}

// LoadSource is Load for a text that need not be on disk. Its folder, for modules and file functions, is that of
// filename.
func LoadSource(filename string, src []byte, opts Options) (*Recipe, hcl.Diagnostics) {
	limits := budget.New()
	l := &loader{files: parse.NewFiles(limits, opts.readFile, opts.Parts), required: map[string]parse.Requirement{},
		refused: map[string]bool{}, recipe: filename}
	l.finder, _ = opts.Plugins.(ModuleFinder)
	dir := filepath.Dir(filename)
	p := &evaluator{loader: l, budget: limits, opts: opts, bad: map[hclsyntax.Expression]bool{},
		secrets: &secret.Texts{}, read: &names{}, instances: map[addr.Block]*instance{}}
	files := &function.Files{Dir: dir}
	p.base = &hcl.EvalContext{Functions: function.All(function.Options{Files: files, Template: parse.Template(limits),
		Result:  limits.Result,
		Environ: function.Environ(opts.Environ), Reads: p.read.add, Secret: p.secrets.Add, Sensitive: decode.Sensitive,
		Ephemeral: decode.Ephemeral})}
	r := &Recipe{File: filename, Dir: dir, Files: l.files.Shown, eval: p}
	var err error
	if p.shared, err = decode.NewShared(files, p.secrets.AddValue); err != nil {
		return r, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Broken build", Detail: err.Error()}}
	}
	root := &module{source: l.files.Parse(filename, src)}
	l.grow(root)
	p.root = &moduleInstance{module: root}
	root.instances = []*moduleInstance{p.root}
	given := input.Reader{Environ: opts.Environ, Planned: opts.Planned, VarFiles: opts.VarFiles, Vars: opts.Vars,
		ReadFile: opts.readFile, Files: l.files, Budget: limits, Functions: p.base}
	p.given = given.Read(root.source.Variables)
	p.diags = append(p.diags, given.Diags...)
	sorted, cycles := order(p.connect(root), l.files)
	p.diags = append(p.diags, cycles...)
	p.evaluateAll(sorted)
	p.diags = append(p.diags, checkSubstitutes(l.modules, opts.Replace, opts.Mocks)...)
	p.finish(r, root, files)
	withholdSensitive(l.modules, l.files)
	p.diags = slices.Concat(p.diags, checkAlerts(p.alerts, r.Blocks), checkEvaluations(p.held, r.Blocks),
		checkPeriods(r.Blocks), checkMetrics(p.alerts, evaluations{p.held, p.unread}, r.Blocks),
		checkBest(evaluations{p.held, p.unread}, r.Blocks))
	for _, a := range p.alerts {
		r.Alerts = append(r.Alerts, *a)
	}
	for _, e := range p.held {
		r.Evaluations = append(r.Evaluations, *e)
	}
	if !p.diags.HasErrors() && !l.unread().HasErrors() { // else a trainer, a sync block or a dependency may be missing
		p.diags = append(p.diags, checkBlocks(r.Blocks)...)
	}
	r.Unread = p.redact(diagnostic.Tidy(l.unread()), nil)
	diags := p.redact(diagnostic.Few(diagnostic.Tidy(limits.With(append(l.unread(), l.files.Credible(p.diags)...))),
		maxReported), nil)
	locate(diags, l.modules)
	for _, d := range diags {
		if d.Severity == hcl.DiagWarning {
			r.Warnings = append(r.Warnings, d)
		}
	}
	return r, diags
}

// connect looks up plugins and resolves every name of every module.
func (p *evaluator) connect(root *module) []*node {
	var nodes []*node
	for _, m := range p.loader.modules {
		nodes = append(nodes, m.nodes()...)
	}
	l := lookups{plugins: p.opts.Plugins, replace: p.opts.Replace, required: p.loader.required, refused: p.loader.refused,
		known: map[blockName]*PluginSchema{}}
	l.require(root.source.Path)
	l.checkProgram(p.loader.modules)
	for _, n := range nodes {
		if n.block == nil {
			continue
		}
		n.plugin = l.schemaOf(n)
		if r := l.replacement(n.block); r != nil {
			p.loader.files.Shown[r.Range.Filename] = r.File
			replace(n, r)
		}
	}
	p.diags = append(p.diags, l.diags...)
	implicit := implicitTrajectories(root, nodes, p.opts.Plugins)
	s := settings{root: root, implicit: implicit, files: p.loader.files, budget: p.budget, shared: p.shared}
	s.set(p.opts.Set)
	p.settings, p.diags = s.made, append(p.diags, s.diags...)
	for _, n := range nodes {
		if n.call != nil {
			n.child = n.module.children[n.call.Name]
		}
	}
	for _, n := range nodes {
		p.prepare(n)
	}
	return p.wireTrajectories(root, nodes, implicit)
}

// finish fills the public recipe.
func (p *evaluator) finish(r *Recipe, root *module, files *function.Files) {
	s := root.source
	base := filepath.Base(r.File)
	r.Name = strings.TrimSuffix(base, ".hcl")
	if s.Recipe != nil {
		if s.Recipe.Name != "" {
			r.Name = s.Recipe.Name
		}
		r.RequiredVersion = s.Recipe.RequiredVersion
	}
	if d := longName(r); d != nil {
		p.diags = append(p.diags, d)
	}
	for _, name := range slices.Sorted(maps.Keys(p.loader.required)) {
		r.Required = append(r.Required, p.loader.required[name])
	}
	r.Modules = p.loader.packaged
	for _, inst := range p.instances {
		r.Blocks = append(r.Blocks, inst.block)
	}
	slices.SortFunc(r.Blocks, func(a, b *Block) int { return addr.Compare(a.Addr, b.Addr) })
	moved, diags := resolveMoved(p.loader.modules, r.Blocks)
	r.Moved, p.diags = moved, append(p.diags, diags...)
	for _, d := range s.Variables {
		n := root.variables[d.Name]
		if n.variable != d || len(n.done) == 0 || n.done[0] == nil {
			continue
		}
		v := &Variable{Name: d.Name, Description: d.Description, Type: d.Type, Value: n.done[0].value, Source: input.Default,
			Sensitive: d.Sensitive, Range: d.Header}
		if g, ok := p.given[d.Name]; ok {
			v.Source, v.stored = g.Source, g.Stored
		}
		r.Variables = append(r.Variables, v)
	}
	for _, d := range s.Outputs {
		n := root.outputs[d.Name]
		if n.output != d || len(n.done) == 0 || n.done[0] == nil {
			continue
		}
		out := &Output{Name: d.Name, Description: d.Description, Sensitive: d.Sensitive, Value: n.done[0].value,
			Range: d.Header}
		if !d.Sensitive && containsSensitive(out.Value) {
			p.diags = append(p.diags, diagnostic.Problem(n.output.Value.Expr.Range(), "Sensitive output",
				fmt.Sprintf(
					"The output %q uses a sensitive value. Set sensitive = true in it, or put nonsensitive(…) "+
						"around the part that is not secret.", d.Name)))
		}
		r.Outputs = append(r.Outputs, out)
	}
	r.VarFiles, r.Settings = p.opts.VarFiles, p.settings
	slices.SortFunc(r.Variables, func(a, b *Variable) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Outputs, func(a, b *Output) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range p.trackers {
		r.Trackers = append(r.Trackers, *t)
	}
	r.Digest = p.digest(r, files)
}

func containsSensitive(v cty.Value) bool {
	if !v.ContainsMarked() {
		return false
	}
	_, marks := v.UnmarkDeep()
	_, sensitive := marks[decode.Sensitive]
	_, ephemeral := marks[decode.Ephemeral]
	return sensitive || ephemeral
}

// digest covers every source file, every file that a function has read, and every variable except those that use env():
// these are read again when they are used, so a plan does not depend on them.
func (p *evaluator) digest(r *Recipe, files *function.Files) string {
	h := sha256.New()
	part := func(name string, data []byte) {
		sum := sha256.Sum256(data)
		_, _ = fmt.Fprintf(h, "%q %x\n", name, sum) // a hash never fails
	}
	rel := func(path string) string {
		for _, m := range p.loader.modules { // the folder of a package is another on each machine
			if out, err := filepath.Rel(m.root, path); m.root != "" && err == nil && filepath.IsLocal(out) {
				return "module." + m.path + "/" + filepath.ToSlash(out)
			}
		}
		if out, err := filepath.Rel(r.Dir, path); err == nil {
			return filepath.ToSlash(out)
		}
		return path
	}
	sources := map[string][]byte{}
	for _, s := range p.loader.files.Sources {
		sources[rel(s.Path)] = s.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		part("source:"+name, sources[name])
	}
	read := files.Read()
	for _, name := range slices.Sorted(maps.Keys(read)) {
		part("file:"+rel(name), []byte(read[name]))
	}
	for _, v := range r.Variables {
		value, marks := v.Value.UnmarkDeep()
		data := []byte("not part of it")
		if _, ephemeral := marks[decode.Ephemeral]; !ephemeral && value.IsWhollyKnown() {
			if raw, err := ctyjson.Marshal(value, value.Type()); err == nil {
				data = raw
			}
		}
		part("variable:"+v.Name, data)
	}
	for _, s := range r.Settings {
		part("set:"+s.At, []byte(s.Value))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// locate gives each diagnostic without an address that of the block it stands in.
func locate(diags hcl.Diagnostics, modules []*module) {
	if len(diags) == 0 {
		return
	}
	for _, m := range modules {
		for _, n := range m.nodes() {
			if n.block == nil || n.block.Implicit {
				continue
			}
			for _, d := range diags {
				if d.Subject == nil || d.Subject.Filename != n.header.Filename ||
					d.Subject.Start.Byte < n.header.Start.Byte ||
					d.Subject.Start.Byte >= n.block.Body.EndRange.End.Byte {
					continue
				}
				if _, ok := hcl.DiagnosticExtra[interface{ DiagnosticAddress() string }](d); !ok {
					d.Extra = InstanceExtra{Address: addr.Block{Module: m.path, Kind: n.block.Kind,
						Plugin: n.block.Plugin, Name: n.block.Name}, Inner: d.Extra}
				}
			}
		}
	}
}
