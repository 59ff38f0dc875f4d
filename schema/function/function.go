// Package function holds the functions that expressions of a recipe may call. docs/language.md lists them.
package function

import (
	"strings"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	yaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Options are what the functions that look beyond their arguments need.
type Options struct {
	Files   *Files            // what file, templatefile, … read
	Environ map[string]string // what env reads
	// called with each name that is looked up there; may be nil
	Reads    func(name string)
	Secret   func(value string)                                          // called with each value of env; may be nil
	Template func(path string, src []byte) (hclsyntax.Expression, error) // how templatefile parses; nil: as hcl does
	// called with what a function has made; may be nil
	Result    func(value cty.Value)
	Sensitive any // mark of values that are never shown
	// mark of values that are read again whenever they are used
	Ephemeral any
}

// All returns every function by name. Functions are pure, except those that read files and the environment.
func All(o Options) map[string]function.Function {
	all := map[string]function.Function{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc,
		"min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": pow(), "signum": stdlib.SignumFunc, "sum": sum(),
		// strings
		"chomp": stdlib.ChompFunc, "endswith": affix(strings.HasSuffix), "format": sized(stdlib.FormatFunc, formatSize),
		"formatlist": sized(stdlib.FormatListFunc, formatSize),
		"indent":     sized(stdlib.IndentFunc, indentSize), "join": sized(stdlib.JoinFunc, joinSize),
		"lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc,
		"replace": replace(), "split": stdlib.SplitFunc, "startswith": affix(strings.HasPrefix),
		"strcontains": affix(strings.Contains),
		"strlen":      stdlib.StrlenFunc,
		"strrev":      stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc,
		"trimspace":  stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,
		// collections
		"alltrue": all_(), "anytrue": any_(), "chunklist": stdlib.ChunklistFunc, "coalesce": coalesce(),
		"coalescelist": stdlib.CoalesceListFunc,
		"compact":      stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": contains(),
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc,
		"flatten": stdlib.FlattenFunc, "index": index(), "keys": stdlib.KeysFunc, "length": length(),
		"lookup": lookup(), "merge": stdlib.MergeFunc,
		"one": one(), "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc,
		"setproduct":      stdlib.SetProductFunc, "setsubtract": stdlib.SetSubtractFunc,
		"setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc,
		"sort": stdlib.SortFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		// encodings and hashes
		"base64decode": base64decode(), "base64encode": base64encode(), "csvdecode": stdlib.CSVDecodeFunc,
		"jsondecode": jsondecode(),
		"jsonencode": stdlib.JSONEncodeFunc, "md5": digest("md5"), "sha1": digest("sha1"), "sha256": digest("sha256"),
		"sha512":    digest("sha512"),
		"urlencode": urlencode(), "yamldecode": yamldecode(), "yamlencode": yaml.YAMLEncodeFunc,
		// types and errors
		"can": tried(tryfunc.CanFunc), "try": tried(tryfunc.TryFunc), "tobool": to("tobool", cty.Bool),
		"tolist": to("tolist", cty.List(cty.DynamicPseudoType)),
		"tomap":  to("tomap", cty.Map(cty.DynamicPseudoType)), "tonumber": to("tonumber", cty.Number),
		"toset":    to("toset", cty.Set(cty.DynamicPseudoType)),
		"tostring": to("tostring", cty.String), "type": typeOf(),
		// durations
		"duration_seconds": durationSeconds(),
		// secrets
		"env": env(o), "issensitive": isSensitive(o), "nonsensitive": nonsensitive(o), "sensitive": sensitive(o),
		// paths and files
		"abspath": abspath(o.Files), "basename": path(base), "dirname": path(dir), "file": file(o.Files, false),
		"filebase64": file(o.Files, true),
		"fileexists": fileexists(o.Files), "fileset": fileset(o.Files), "filesha256": filesha256(o.Files),
		"pathexpand": pathexpand(o),
	}
	all = guarded(all, o.Result)
	all["templatefile"] = templatefile(o, all)
	return all
}
