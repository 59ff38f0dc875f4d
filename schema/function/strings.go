package function

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func text(name string) function.Parameter { return function.Parameter{Name: name, Type: cty.String} }

// stringFunc makes a function of strings.
func stringFunc(result cty.Type, impl func(args []string) (cty.Value, error), params ...string) function.Function {
	spec := &function.Spec{
		Type: function.StaticReturnType(result),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			texts := make([]string, len(args))
			for i, a := range args {
				texts[i] = a.AsString()
			}
			return impl(texts)
		},
	}
	for _, p := range params {
		spec.Params = append(spec.Params, text(p))
	}
	return function.New(spec)
}

func affix(test func(s, affix string) bool) function.Function {
	return stringFunc(cty.Bool, func(a []string) (cty.Value, error) { return cty.BoolVal(test(a[0], a[1])), nil },
		"string", "part")
}

// replace replaces a substring or, written between slashes, a regular expression.
func replace() function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		s, old, with := a[0], a[1], a[2]
		if len(old) > 1 && strings.HasPrefix(old, "/") && strings.HasSuffix(old, "/") {
			re, err := regexp.Compile(old[1 : len(old)-1])
			if err != nil {
				return cty.NilVal, function.NewArgError(1, err)
			}
			if n := len(re.FindAllStringIndex(s, -1)); len(s)+
				n*(len(with)+len(s)*strings.Count(with, "$")) > maxResult {
				return cty.NilVal, errTooLarge
			}
			return cty.StringVal(re.ReplaceAllString(s, with)), nil
		}
		if len(s)+strings.Count(s, old)*len(with) > maxResult {
			return cty.NilVal, errTooLarge
		}
		return cty.StringVal(strings.ReplaceAll(s, old, with)), nil
	}, "string", "substring", "replacement")
}

var errTooLarge = fmt.Errorf("the result would be larger than %d MiB", maxResult>>20)

func base64encode() function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		return cty.StringVal(base64.StdEncoding.EncodeToString([]byte(a[0]))), nil
	}, "string")
}

func base64decode() function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		out, err := base64.StdEncoding.DecodeString(a[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "not base64")
		}
		if !utf8.Valid(out) {
			return cty.NilVal, function.NewArgErrorf(0, "the decoded bytes are not UTF-8 text")
		}
		return cty.StringVal(string(out)), nil
	}, "string")
}

func urlencode() function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		return cty.StringVal(url.QueryEscape(a[0])), nil
	}, "string")
}

func digest(name string) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		return cty.StringVal(hashed(name, []byte(a[0]))), nil
	}, "string")
}

func hashed(name string, data []byte) string {
	h := map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}[name]()
	_, _ = h.Write(data) // a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// durationSeconds turns "1h30m" into 5400.
func durationSeconds() function.Function {
	return stringFunc(cty.Number, func(a []string) (cty.Value, error) {
		d, err := time.ParseDuration(a[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, `not a duration like "30s" or "1h30m"`)
		}
		return cty.NumberFloatVal(d.Seconds()), nil
	}, "duration")
}

// pow turns a panic of cty into an error.
func pow() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "base", Type: cty.Number}, {Name: "exponent", Type: cty.Number}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (v cty.Value, err error) {
			defer func() {
				if recover() != nil { // cty panics on NaN and on infinities that cannot be combined
					err = errors.New("the result is not a number")
				}
			}()
			return stdlib.PowFunc.Call(args)
		},
	})
}
