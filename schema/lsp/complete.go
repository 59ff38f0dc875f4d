package lsp

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func (s *server) completion(ctx context.Context, p *protocol.CompletionParams) (protocol.CompletionResult, error) {
	list := &protocol.CompletionList{Items: []protocol.CompletionItem{}}
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok || !parse.IsRecipeFile(filepath.Base(at.path)) {
		return list, nil
	}
	s.mu.Lock()
	snippets := s.snippets
	s.mu.Unlock()
	c := at.cursor()
	typed := span{at.offset - len(c.typed), at.offset}
	for _, proposal := range c.proposals() {
		list.Items = append(list.Items, proposal.item(at.file.text.rangeOf(typed), snippets))
	}
	return list, nil
}

// proposal is one way to go on.
type proposal struct {
	label, detail, doc string
	kind               protocol.CompletionItemKind
	insert             string // text to insert, when it is not the label
	snippet            string // the same with places to fill in
	first              bool   // sorted before the others
	deprecated         bool
}

func (p proposal) item(typed protocol.Range, snippets bool) protocol.CompletionItem {
	item := protocol.CompletionItem{Label: p.label, Kind: p.kind, SortText: protocol.NewOptional("1" + p.label)}
	if p.first {
		item.SortText = protocol.NewOptional("0" + p.label)
	}
	if p.detail != "" {
		item.Detail = protocol.NewOptional(p.detail)
	}
	if p.doc != "" {
		item.Documentation = markdown(p.doc)
	}
	if p.deprecated {
		item.Tags = []protocol.CompletionItemTag{protocol.CompletionItemTagDeprecated}
	}
	text := p.label
	if p.insert != "" {
		text = p.insert
	}
	if snippets && p.snippet != "" {
		text, item.InsertTextFormat = p.snippet, protocol.InsertTextFormatSnippet
	}
	item.TextEdit = &protocol.TextEdit{Range: typed, NewText: text}
	return item
}

// cursor is the place of a completion, in terms of the language.
type cursor struct {
	place
	reader  *reader  // of the text before the place, in its part
	typed   string   // of the word that is being written
	quoted  bool     // the word is inside quotes
	chain   []string // names before the word, up to the last dot: inference, vllm
	broken  bool     // the chain contains what is not a name, such as an index
	part    part
	inBlock *block // with all that stands in it, behind the place too; nil at the top
}

// cursor reads the text before the place again. What stands behind it does not matter, except for what a block has.
func (at place) cursor() *cursor {
	c := &cursor{place: at}
	p, ok := at.file.at(at.offset)
	if !ok {
		p = part{&piece{}, 0}
	}
	c.part = p
	before := p.src[:min(len(p.src), at.offset-p.base)]
	c.reader = &reader{src: before}
	tokens := tokensOf(before)
	for _, t := range tokens {
		c.reader.token(t)
	}
	c.word(tokens, before)
	if open := c.reader.block(); open != nil {
		c.inBlock = c.same(&p.top, c.reader.blocks)
		if c.inBlock == nil {
			c.inBlock = open
		}
	}
	return c
}

// same finds the block at the end of a path in what the whole part contains.
func (c *cursor) same(in *body, path []*block) *block {
	for _, b := range in.blocks {
		if b.kindAt == path[0].kindAt {
			if len(path) == 1 {
				return b
			}
			return c.same(&b.body, path[1:])
		}
	}
	return nil
}

// word reads the tokens before the place from the back: the word that is being written and the names before it.
func (c *cursor) word(tokens []token, before string) {
	i := len(tokens) - 1
	for i >= 0 && (tokens[i].kind == hclsyntax.TokenEOF || tokens[i].kind == hclsyntax.TokenInvalid) {
		i--
	}
	touches := func(i int) bool { return i >= 0 && tokens[i].at.end == len(before) }
	if !touches(i) {
		return
	}
	switch t := tokens[i]; t.kind {
	case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit, hclsyntax.TokenBadUTF8, hclsyntax.TokenQuotedNewline:
		c.typed, c.quoted = t.text, true
		return
	case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
		c.quoted = true
		return
	case hclsyntax.TokenComment:
		c.broken = true
		return
	case hclsyntax.TokenIdent:
		c.typed = t.text
		i--
	case hclsyntax.TokenNumberLit:
		c.broken = true
		return
	default:
	}
	for i >= 0 && tokens[i].kind == hclsyntax.TokenDot {
		if i == 0 || tokens[i-1].kind != hclsyntax.TokenIdent {
			closes := i > 0 && tokens[i-1].kind == hclsyntax.TokenCBrack
			if !closes {
				c.broken = true
				return
			}
			for i--; i >= 0 && tokens[i].kind != hclsyntax.TokenOBrack; i-- { // an index does not change what follows
			}
			if i <= 0 || tokens[i-1].kind != hclsyntax.TokenIdent {
				c.broken = true
				return
			}
		}
		i--
		c.chain = append([]string{tokens[i].text}, c.chain...)
		i--
	}
}

// proposals are what can stand at the cursor.
func (c *cursor) proposals() []proposal {
	r := c.reader
	switch {
	case c.broken:
		return nil
	case r.current != nil:
		return c.values()
	case r.opening != nil && (c.quoted || len(r.opening.labels) > 0 || r.opening.kindAt.end < len(r.src)):
		return c.labels(r.opening)
	case c.quoted:
		return nil
	case r.block() == nil:
		return topBlocks()
	}
	return c.items()
}

// topBlocks are the blocks of a file.
func topBlocks() []proposal {
	l, err := grammar()
	if err != nil {
		return nil
	}
	var out []proposal
	for _, name := range declarations {
		p := proposal{label: name, kind: protocol.CompletionItemKindKeyword, doc: l.blocks[name].Doc,
			snippet: name + " \"${1:name}\" {\n  $0\n}"}
		if name == "recipe" || name == "locals" {
			p.snippet = name + " {\n  $0\n}"
		}
		out = append(out, p)
	}
	for _, k := range kind.All() {
		out = append(out, proposal{label: string(k), kind: protocol.CompletionItemKindKeyword, doc: kindDocs[k],
			snippet: string(k) + " \"$1\" \"${2:name}\" {\n  $0\n}"})
	}
	return out
}

// labels are the plugins of a kind and the trackers, for the first label, and the blocks that dynamic can generate.
func (c *cursor) labels(b *block) []proposal {
	n := len(b.labels)
	if c.quoted && c.typed != "" {
		n-- // the last one is being written
	}
	if n > 0 {
		return nil
	}
	if k := kind.Kind(b.kind); k.Valid() && b.parent == nil {
		return c.pluginNames(k)
	}
	var out []proposal
	if b.kind == "tracking" && b.parent == nil {
		for _, name := range decode.Trackers() {
			out = append(out, c.quote(proposal{label: name, kind: protocol.CompletionItemKindModule}))
		}
		return out
	}
	if b.kind != "dynamic" || b.parent == nil {
		return nil
	}
	s := c.schemaOf(c.path, c.file, b.parent)
	if s == nil {
		return nil
	}
	for _, inner := range s.Blocks {
		if inner.Nesting == spec.List {
			out = append(out, c.quote(proposal{label: inner.Name, kind: protocol.CompletionItemKindStruct,
				doc: inner.Schema.Doc}))
		}
	}
	return out
}

func (c *cursor) pluginNames(k kind.Kind) []proposal {
	plugins := c.plugins(c.path)
	if plugins == nil {
		return nil
	}
	var out []proposal
	for _, name := range plugins.Names(k) {
		p := proposal{label: name, kind: protocol.CompletionItemKindModule}
		s := c.plugin(c.path, k, name)
		if s != nil {
			p.detail = s.Summary
		}
		if !c.quoted && !strings.Contains(c.rest(), "{") {
			p.snippet = fmt.Sprintf("%q \"${1:name}\" {\n%s}", name, c.required(s))
		}
		out = append(out, c.quote(p))
	}
	return out
}

// quote puts what is proposed between quotes, unless the cursor is inside some already.
func (c *cursor) quote(p proposal) proposal {
	if !c.quoted {
		p.insert = fmt.Sprintf("%q", p.label)
	}
	return p
}

// rest is the text behind the cursor in its line.
func (c *cursor) rest() string {
	line, _, _ := strings.Cut(c.file.text.src[c.offset:], "\n")
	return line
}

// required are lines for the attributes that a plugin requires, as a snippet.
func (c *cursor) required(s *schema.PluginSchema) string {
	if s == nil || s.Config == nil {
		return "  $0\n"
	}
	return requiredLines(s.Config, 2, "  ") + "  $0\n"
}

// requiredLines sets every required attribute of a schema to a place to fill in, which have numbers from n.
func requiredLines(s *spec.Schema, n int, indent string) string {
	var out strings.Builder
	for _, a := range s.Attributes {
		if a.Required {
			fmt.Fprintf(&out, "%s%s = %s\n", indent, a.Name, blank(a, n))
			n++
		}
	}
	return out.String()
}

// blank is a place to fill in a value of an attribute.
func blank(a *spec.Attribute, n int) string {
	switch {
	case a.List || a.Type.IsListType() || a.Type.IsSetType() || a.Type.IsTupleType() || a.Format == spec.FormatList:
		return fmt.Sprintf("[$%d]", n)
	case len(a.References) > 0:
		return fmt.Sprintf("$%d", n)
	case a.Type == cty.String:
		return fmt.Sprintf("\"$%d\"", n)
	case a.Type.IsMapType() || a.Type.IsObjectType() || a.Format == spec.FormatMap:
		return fmt.Sprintf("{ $%d }", n)
	}
	return fmt.Sprintf("$%d", n)
}

// items are the attributes and blocks that the block around the cursor can take besides those that it has.
func (c *cursor) items() []proposal {
	s := c.schemaOf(c.path, c.file, c.inBlock)
	if s == nil {
		return nil
	}
	written := map[string]int{}
	for _, a := range c.inBlock.attributes {
		written[a.name]++
	}
	for _, b := range c.inBlock.blocks {
		written[b.kind]++
	}
	if c.typed != "" { // the word itself
		written[c.typed]--
	}
	equals := strings.HasPrefix(strings.TrimSpace(c.rest()), "=")
	var out []proposal
	for _, a := range s.Attributes {
		if a.Computed || written[a.Name] > 0 {
			continue
		}
		p := proposal{label: a.Name, kind: protocol.CompletionItemKindProperty, detail: a.Friendly(), doc: a.Describe(),
			first: a.Required, deprecated: a.Deprecated != ""}
		if !equals {
			p.insert, p.snippet = a.Name+" = ", a.Name+" = "+blank(a, 0)
		}
		out = append(out, p)
	}
	generates := false
	for _, b := range s.Blocks {
		generates = generates || b.Nesting == spec.List
		if b.Nesting == spec.Single && written[b.Name] > 0 {
			continue
		}
		out = append(out, proposal{label: b.Name, kind: protocol.CompletionItemKindStruct, doc: b.Schema.Doc,
			first: b.Required, insert: b.Name + " {}",
			snippet: b.Name + " {\n" + requiredLines(b.Schema, 1, "  ") + "  $0\n}"})
	}
	if generates && c.reader.block().kind != "dynamic" && kind.Kind(c.reader.blocks[0].kind).Valid() {
		out = append(out, proposal{label: "dynamic", kind: protocol.CompletionItemKindStruct,
			doc: "generates a nested block for each element", insert: "dynamic ",
			snippet: "dynamic \"$1\" {\n  for_each = $2\n  content {\n    $0\n  }\n}"})
	}
	return out
}

// values are what the value of an attribute can contain at the cursor.
func (c *cursor) values() []proposal {
	a := c.reader.current
	known := (*spec.Attribute)(nil)
	if s := c.schemaOf(c.path, c.file, c.inBlock); s != nil {
		known = s.Attribute(a.name)
	}
	if c.quoted {
		return c.texts(known)
	}
	if len(c.chain) > 0 {
		return c.members(known)
	}
	var out []proposal
	out = append(out, c.texts(known)...)
	if known != nil && known.Type == cty.Bool {
		for _, word := range []string{"true", "false"} {
			out = append(out, proposal{label: word, kind: protocol.CompletionItemKindKeyword, first: true})
		}
	}
	if a.name == "type" && a.in != nil && a.in.kind == "variable" {
		for _, name := range []string{"string", "number", "bool", "any", "list", "set", "map", "tuple", "object"} {
			out = append(out, proposal{label: name, kind: protocol.CompletionItemKindKeyword})
		}
		return out
	}
	out = append(out, c.blocksFor(known)...)
	out = append(out, c.roots(known)...)
	for name, f := range functions() {
		out = append(out, proposal{label: name, kind: protocol.CompletionItemKindFunction, detail: signature(name, f),
			doc: f.Description(), insert: name + "(", snippet: name + "($0)"})
	}
	return out
}

// texts are the values that a string can have; in a list, each of its elements.
func (c *cursor) texts(a *spec.Attribute) []proposal {
	if a == nil {
		return nil
	}
	var out []proposal
	for _, value := range a.Enum {
		p := proposal{label: value, kind: protocol.CompletionItemKindEnumMember, first: true}
		out = append(out, c.quote(p))
	}
	return out
}

// blocksFor are the blocks that an attribute can refer to, whole; for depends_on all, and modules.
func (c *cursor) blocksFor(a *spec.Attribute) []proposal {
	var out []proposal
	depends := c.reader.current.name == "depends_on"
	if a == nil || len(a.References) == 0 && !depends {
		return nil
	}
	for _, s := range c.file.declarations(c.path, instance) {
		k, _, _ := strings.Cut(s.name, ".")
		if depends || slices.Contains(a.References, kind.Kind(k)) {
			out = append(out, proposal{label: s.name, kind: protocol.CompletionItemKindReference, first: true})
		}
	}
	return out
}

// roots are the words that references start with, where there is something to refer to.
func (c *cursor) roots(a *spec.Attribute) []proposal {
	var out []proposal
	add := func(word, doc string) {
		out = append(out, proposal{label: word, doc: doc, kind: protocol.CompletionItemKindVariable})
	}
	for _, class := range []class{variable, local, module} {
		if len(c.file.declarations(c.path, class)) > 0 {
			add(string(class), "")
		}
	}
	kinds := map[string]bool{}
	for _, s := range c.file.declarations(c.path, instance) {
		k, _, _ := strings.Cut(s.name, ".")
		if !kinds[k] {
			kinds[k] = true
			add(k, kindDocs[kind.Kind(k)])
		}
	}
	if a != nil && a.PerTask {
		add("task", "task.NAME: a member of the task")
	}
	add("path", "path.module, path.root: the folder of this file, and of the recipe")
	if top := c.reader.blocks; len(top) > 0 && c.inBlock != nil {
		outermost := c.same(&c.part.top, top[:1])
		if outermost != nil && outermost.attribute("count") != nil {
			add("count", "count.index: the current instance")
		}
		if outermost != nil && outermost.attribute("for_each") != nil {
			add("each", "each.key, each.value: the current instance")
		}
		if len(top) > 1 && top[1].kind == "lifecycle" {
			add("self", "the block itself")
		}
	}
	return out
}

// members are what can follow the names before the cursor.
func (c *cursor) members(a *spec.Attribute) []proposal {
	switch root := c.chain[0]; {
	case root == string(variable) && len(c.chain) == 1:
		return c.symbols(variable)
	case root == string(local) && len(c.chain) == 1:
		return c.symbols(local)
	case root == string(module) && len(c.chain) == 1:
		return c.symbols(module)
	case root == string(module) && len(c.chain) == 2:
		target := c.moduleTarget(c.file, c.path, c.chain[1])
		f := c.view.file(c.snapshot, target)
		if f == nil {
			return nil
		}
		return c.symbolsOf(f, target, output)
	case root == "path":
		return words("module", "root")
	case root == "count":
		return words("index")
	case root == "each":
		return words("key", "value")
	case root == "self":
		return c.memberNames(c.reader.blocks[0])
	case kind.Kind(root).Valid():
		return c.blockMembers(a)
	}
	return nil
}

func words(list ...string) []proposal {
	var out []proposal
	for _, word := range list {
		out = append(out, proposal{label: word, kind: protocol.CompletionItemKindProperty})
	}
	return out
}

func (c *cursor) symbols(class class) []proposal { return c.symbolsOf(c.file, c.path, class) }

func (c *cursor) symbolsOf(f *file, path string, class class) []proposal {
	var out []proposal
	for _, s := range f.declarations(path, class) {
		p := proposal{label: s.name, kind: protocol.CompletionItemKindVariable}
		if part, b := f.blockNamed(s); b != nil && class == variable {
			a := variableOf(s.name, part, b)
			p.detail, p.doc = a.Friendly(), a.Describe()
		}
		out = append(out, p)
	}
	return out
}

// blockMembers complete KIND. to a plugin, KIND.PLUGIN. to a name and KIND.PLUGIN.NAME. to an output or attribute.
func (c *cursor) blockMembers(a *spec.Attribute) []proposal {
	var out []proposal
	seen := map[string]bool{}
	for _, s := range c.file.declarations(c.path, instance) {
		steps := strings.SplitN(s.name, ".", 3)
		n := len(c.chain)
		if n < 3 && slices.Equal(steps[:n], c.chain) && !seen[steps[n]] {
			seen[steps[n]] = true
			p := proposal{label: steps[n], kind: protocol.CompletionItemKindModule}
			if n == 2 {
				p.kind = protocol.CompletionItemKindReference
			}
			out = append(out, p)
		}
		if n == 3 && slices.Equal(steps, c.chain) && (a == nil || len(a.References) == 0) {
			_, b := c.file.blockNamed(s)
			return c.memberNames(b)
		}
	}
	return out
}

// memberNames are the outputs and attributes that a reference to a block has.
func (c *cursor) memberNames(b *block) []proposal {
	p := c.pluginOf(c.path, b)
	if p == nil {
		return nil
	}
	out := words("address", "kind")
	for i, s := range []*spec.Schema{p.Outputs, p.Config} {
		if s == nil {
			continue
		}
		for _, a := range s.Attributes {
			if i == 1 && p.Outputs != nil && p.Outputs.Attribute(a.Name) != nil {
				continue // the output is meant
			}
			out = append(out, proposal{label: a.Name, kind: protocol.CompletionItemKindProperty, detail: a.Friendly(),
				doc: a.Describe(), first: i == 0})
		}
	}
	return out
}
