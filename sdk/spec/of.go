package spec

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Of makes the schema of a struct (or pointer to one) from its tags. Fields without a `recipe` tag are left out;
// embedded structs without one are flattened.
//
//	recipe:"name"          attribute; recipe:"name,block" nested block: *struct (single),
//	                       struct (single; left out, it has its defaults), []struct (list)
//	required:"true"        the recipe must set it        computed:"true"  the block sets it (outputs)
//	default:"0.9"          text for strings and durations, JSON for everything else
//	min:"0" max:"1"        of a number, of a duration ("1s"), or of the length of a list or map
//	enum:"a,b"             allowed values of a string (or of each string of a list)
//	pattern:"[a-z]+"       RE2, must match the whole string
//	reference:"inference"  kinds that the field, a Ref, *Ref or []Ref, may refer to
//	code:"python"          a function in a file beside the recipe, "FILE.py:FUNCTION" (see Code)
//	file:"content"         a file or folder whose content counts as part of the value; within:"NAME": see Attribute
//	change:"live"          live, resume, restart (default) or replace
//	environment:"AWS_*"    variables that the block's process gets of the engine's environment when this is set
//	doc, unit, deprecated  text; sensitive:"true" never shown and never stored
//
// An error names the field whose tags are wrong: it is a mistake of the plugin's author, not of the recipe.
func Of(config any) (*Schema, error) {
	t, ok := config.(reflect.Type)
	if !ok {
		t = reflect.TypeOf(config)
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("make a schema: expected a struct with `recipe` tags, got %v", t)
	}
	return schemaOf(t, nil)
}

func schemaOf(t reflect.Type, parents []reflect.Type) (*Schema, error) {
	if slices.Contains(parents, t) {
		return nil, fmt.Errorf("make a schema: %s contains itself; nested blocks must end somewhere", t)
	}
	parents = append(slices.Clone(parents), t)
	fields, err := fieldsOf(t)
	if err != nil {
		return nil, err
	}
	s := &Schema{}
	for _, f := range fields {
		if f.block {
			b, err := blockOf(f, parents)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", t, f.goName, err)
			}
			s.Blocks = append(s.Blocks, b)
			continue
		}
		a, err := attributeOf(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.goName, err)
		}
		s.Attributes = append(s.Attributes, a)
	}
	s.sort()
	return s, s.verify()
}

// SetDefault changes the default of an attribute. The value is written as in the tag `default`.
func (s *Schema) SetDefault(attribute, value string) error {
	a := s.Attribute(attribute)
	if a == nil {
		return fmt.Errorf("there is no attribute %q", attribute)
	}
	v, err := defaultOf(value, a)
	if err != nil {
		return fmt.Errorf("the default of %s: %w", attribute, err)
	}
	a.Default = v
	if err := a.verify(); err != nil {
		return fmt.Errorf("the default of %s: %w", attribute, err)
	}
	return nil
}

// Merge adds the attributes and blocks of other. Its error says what no schema may have, such as two of one name.
func (s *Schema) Merge(other *Schema) error {
	s.Attributes = append(s.Attributes, other.Attributes...)
	s.Blocks = append(s.Blocks, other.Blocks...)
	s.OneOf = append(s.OneOf, other.OneOf...)
	s.sort()
	return s.verify()
}

func (s *Schema) sort() {
	sort.Slice(s.Attributes, func(i, j int) bool { return s.Attributes[i].Name < s.Attributes[j].Name })
	sort.Slice(s.Blocks, func(i, j int) bool { return s.Blocks[i].Name < s.Blocks[j].Name })
}

func blockOf(f field, parents []reflect.Type) (*Block, error) {
	b := &Block{Name: f.name, Nesting: Single, Required: f.tag.Get("required") == "true"}
	t := f.typ
	switch {
	case t.Kind() == reflect.Slice:
		b.Nesting = List
		t = t.Elem()
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("a block must be a struct, a pointer to one or a slice of them, got %s", f.typ)
	}
	var err error
	if b.Schema, err = schemaOf(t, parents); err != nil {
		return nil, err
	}
	b.Schema.Doc = f.tag.Get("doc")
	return b, nil
}

func attributeOf(f field) (*Attribute, error) {
	tag := f.tag
	a := &Attribute{
		Name: f.name, Doc: tag.Get("doc"), Unit: tag.Get("unit"), Deprecated: tag.Get("deprecated"),
		Required: tag.Get("required") == "true", Computed: tag.Get("computed") == "true",
		Sensitive: tag.Get("sensitive") == "true",
		Pattern:   tag.Get("pattern"), Change: Change(tag.Get("change")), PerTask: tag.Get("per") == "task",
	}
	if e := tag.Get("enum"); e != "" {
		a.Enum = strings.Split(e, ",")
	}
	if of := tag.Get("columns"); of != "" {
		a.Columns = &Columns{Of: of}
	}
	a.Environment = splitComma(tag.Get("environment"))
	for _, k := range splitComma(tag.Get("reference")) {
		a.References = append(a.References, kind.Kind(k))
	}
	var err error
	if a.Type, a.Format, err = typeOf(f.typ); err != nil {
		return nil, err
	}
	if tag.Get("code") != "" {
		formats := map[string]string{"python": FormatCode, "callable": FormatCallable}
		if a.Format = formats[tag.Get("code")]; a.Type != cty.String || a.Format == "" {
			return nil, fmt.Errorf("`code:\"python\"` and `code:\"callable\"` go with a string, got %s and %q", f.typ,
				tag.Get("code"))
		}
	}
	if tag.Get("file") != "" {
		if a.Type != cty.String || tag.Get("file") != "content" {
			return nil, fmt.Errorf("`file:\"content\"` goes with a string, got %s and %q", f.typ, tag.Get("file"))
		}
		a.Format, a.Within = FormatFile, tag.Get("within")
	}
	if tag.Get("model") != "" {
		formats := map[string]string{"folder": FormatModel, "file": FormatModelFile}
		if a.Format = formats[tag.Get("model")]; a.Type != cty.String || a.Format == "" {
			return nil, fmt.Errorf("`model:\"folder\"` and `model:\"file\"` go with a string, got %s and %q", f.typ,
				tag.Get("model"))
		}
	}
	isRef := indirect(f.typ) == refType
	isRefList := f.typ.Kind() == reflect.Slice && f.typ.Elem() == refType
	if (len(a.References) > 0) != (isRef || isRefList) {
		return nil, fmt.Errorf("`reference` goes with a field of type spec.Ref, *spec.Ref or []spec.Ref, and "+
			"those need it; got %s", f.typ)
	}
	if isRefList {
		a.List, a.Format = true, ""
	}
	if a.Min, err = bound(tag.Get("min"), a.Format); err != nil {
		return nil, fmt.Errorf("min: %w", err)
	}
	if a.Max, err = bound(tag.Get("max"), a.Format); err != nil {
		return nil, fmt.Errorf("max: %w", err)
	}
	a.narrow(f.typ)
	if text, ok := tag.Lookup("default"); ok {
		if a.Default, err = defaultOf(text, a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// narrow bounds a number by what the field can hold, where that is less than what every whole number may be.
func (a *Attribute) narrow(t reflect.Type) {
	t = indirect(t)
	set := func(to **float64, bound float64) {
		if *to == nil {
			*to = &bound
		}
	}
	switch t.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32:
		set(&a.Min, -float64(int64(1)<<(t.Bits()-1)))
		set(&a.Max, float64(int64(1)<<(t.Bits()-1)-1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		set(&a.Max, float64(int64(1)<<t.Bits()-1))
	case reflect.Float32:
		set(&a.Min, -math.MaxFloat32)
		set(&a.Max, math.MaxFloat32)
	default:
	}
	if isUnsigned(t) {
		set(&a.Min, 0)
	}
}

func bound(text, format string) (*float64, error) {
	if text == "" {
		return nil, nil
	}
	if format == FormatDuration {
		if d, err := time.ParseDuration(text); err == nil {
			s := d.Seconds()
			return &s, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("expected a number, got %q", text)
	}
	return &f, nil
}

func defaultOf(text string, a *Attribute) (cty.Value, error) {
	switch {
	case len(a.References) > 0:
		return cty.NilVal, fmt.Errorf("a reference has no default")
	case a.Type == cty.String:
		return cty.StringVal(text), nil
	case a.Type == cty.DynamicPseudoType:
		t, err := ctyjson.ImpliedType([]byte(text))
		if err != nil {
			return cty.NilVal, fmt.Errorf("default: expected JSON, got %q: %w", text, err)
		}
		return ctyjson.Unmarshal([]byte(text), t)
	}
	v, err := ctyjson.Unmarshal([]byte(text), a.Type)
	if err != nil {
		return cty.NilVal, fmt.Errorf("default: expected %s as JSON, got %q: %w", a.Type.FriendlyName(), text, err)
	}
	return v, nil
}

// verify finds what no schema may have, wherever it came from: a struct's tags or a plugin's JSON.
func (s *Schema) verify() error {
	seen := map[string]bool{}
	for _, a := range s.Attributes {
		if a == nil || !validName.MatchString(a.Name) {
			return fmt.Errorf("schema: an attribute has no valid name (expected lower-case letters, digits and _)")
		}
		if seen[a.Name] {
			return fmt.Errorf("schema: %q is declared twice", a.Name)
		}
		seen[a.Name] = true
		if err := a.verify(); err != nil {
			return fmt.Errorf("schema: attribute %q: %w", a.Name, err)
		}
	}
	for _, b := range s.Blocks {
		if b == nil || !validName.MatchString(b.Name) {
			return fmt.Errorf("schema: a nested block has no valid name (expected lower-case letters, digits and _)")
		}
		if seen[b.Name] {
			return fmt.Errorf("schema: %q is declared twice", b.Name)
		}
		seen[b.Name] = true
		if b.Schema == nil || (b.Nesting != Single && b.Nesting != List) {
			return fmt.Errorf("schema: block %q: expected a schema and a nesting of %q or %q, got %q", b.Name, Single,
				List, b.Nesting)
		}
		if err := b.Schema.verify(); err != nil {
			return fmt.Errorf("block %q: %w", b.Name, err)
		}
	}
	return nil
}

var validName = lazyregexp.New(`^[a-z][a-z0-9_]*$`)

func (a *Attribute) verify() error {
	if a.Type == cty.NilType {
		return fmt.Errorf("no type")
	}
	for _, k := range a.References {
		if !k.Valid() {
			return fmt.Errorf("reference: %q is not a kind of block (expected some of %v)", k, kind.All())
		}
	}
	switch a.Change {
	case "", ChangeLive, ChangeResume, ChangeRestart, ChangeReplace:
	default:
		return fmt.Errorf("change: expected live, resume, restart or replace, got %q", a.Change)
	}
	if err := protocol.CheckEnvironmentNames(a.Environment); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	if len(a.Environment) > 0 && a.Change == ChangeLive {
		return fmt.Errorf("environment goes with no change:\"live\": a running process gets no further variables")
	}
	if a.Required && (a.Default != cty.NilVal || a.Computed) {
		return fmt.Errorf("required goes with neither a default nor computed")
	}
	if (a.Min != nil || a.Max != nil) && !a.countable() {
		return fmt.Errorf("min and max go with numbers, durations, lists and maps")
	}
	if (len(a.Enum) > 0 || a.Pattern != "") && a.element() != cty.String {
		return fmt.Errorf("enum and pattern go with strings and lists or maps of strings")
	}
	if a.Pattern != "" {
		re, err := regexp.Compile(`^(?:` + a.Pattern + `)$`)
		if err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
		a.pattern = re
	}
	if a.Default != cty.NilVal {
		if p := a.check(a.Default, nil); len(p) > 0 {
			return fmt.Errorf("the default does not pass its own checks: %s: %s", p[0].Summary, p[0].Detail)
		}
	}
	return nil
}

// element is the type of what enum, pattern and format speak of: the value, or the elements of a collection.
func (a *Attribute) element() cty.Type {
	if a.Type.IsCollectionType() {
		return a.Type.ElementType()
	}
	return a.Type
}

func (a *Attribute) countable() bool {
	return a.Type == cty.Number || a.Type.IsCollectionType() || a.Format == FormatDuration || a.List ||
		a.Format == FormatMap || a.Format == FormatList
}
