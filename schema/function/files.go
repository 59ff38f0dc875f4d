package function

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/recipe-rl/recipe/internal/regular"
)

// maxFile bounds the files that functions read. Data sets are passed by path, not read.
const maxFile = 4 << 20

// Files reads files relative to a folder and records their digests, so that a plan can depend on them.
type Files struct {
	Dir string

	mu       sync.Mutex
	read     map[string]string // path to sha256
	contents map[string]string // by path, of files that blocks read
	whole    int64             // bytes that were read for contents
}

// Read lists the files read so far with the SHA-256 of their content.
func (f *Files) Read() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.read)
}

func (f *Files) resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.Dir, path)
}

// systemFolders contain no ordinary files but views of processes with their environments, of the kernel, of devices.
func systemFolders() []string { return []string{"/proc", "/sys", "/dev"} }

// ordinary rejects a path that leads into one of those folders at any of its steps, also through a link.
func ordinary(path, full string) error {
	abs, err := filepath.Abs(full)
	if err != nil {
		return fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	for step := abs; ; step = filepath.Dir(step) {
		steps := []string{step}
		if real, err := filepath.EvalSymlinks(step); err == nil {
			steps = append(steps, real)
		}
		for _, s := range steps {
			for _, folder := range systemFolders() {
				if s == folder || strings.HasPrefix(s, folder+"/") {
					return fmt.Errorf(
						`%s is in %s, which contains no ordinary files but a view of the system, including secrets of `+
							`its processes. A recipe reads ordinary files only; env("NAME") reads an environment `+
							`variable and keeps it secret`, path, folder)
				}
			}
		}
		if step == filepath.Dir(step) {
			return nil
		}
	}
}

// noFile is the text of an error that is fs.ErrNotExist.
type noFile string

func (n noFile) Error() string        { return string(n) }
func (n noFile) Is(target error) bool { return target == fs.ErrNotExist }

func (f *Files) load(path string) ([]byte, error) {
	full := f.resolve(path)
	if err := ordinary(path, full); err != nil {
		return nil, err
	}
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noFile(fmt.Sprintf("there is no file %s (paths are relative to the folder of the recipe, %s)", path,
			f.Dir))
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil,
			fmt.Errorf("%s has %d MiB; functions read files of at most %d MiB: pass the path instead", path,
				info.Size()>>20, maxFile>>20)
	}
	in, _, err := regular.Follow(full)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read == nil {
		f.read = map[string]string{}
	}
	f.read[full] = hashed("sha256", data)
	return data, nil
}

// Load reads a file as the functions do: bounded and recorded.
func (f *Files) Load(path string) ([]byte, error) { return f.load(path) }

func (f *Files) text(path string) (string, error) {
	data, err := f.load(path)
	if err == nil && !utf8.Valid(data) {
		err = fmt.Errorf("%s is not UTF-8 text; filebase64 reads any file", path)
	}
	return string(data), err
}

func file(f *Files, encode bool) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		if encode {
			data, err := f.load(a[0])
			return cty.StringVal(base64.StdEncoding.EncodeToString(data)), err
		}
		s, err := f.text(a[0])
		return cty.StringVal(s), err
	}, "path")
}

func fileexists(f *Files) function.Function {
	return stringFunc(cty.Bool, func(a []string) (cty.Value, error) {
		if err := ordinary(a[0], f.resolve(a[0])); err != nil {
			return cty.NilVal, err
		}
		info, err := os.Stat(f.resolve(a[0]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return cty.NilVal, fmt.Errorf("cannot inspect %s: %w", a[0], err)
		}
		return cty.BoolVal(err == nil && info.Mode().IsRegular()), nil
	}, "path")
}

func filesha256(f *Files) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		data, err := f.load(a[0])
		return cty.StringVal(hashed("sha256", data)), err
	}, "path")
}

// fileset lists the files in a folder that match a pattern, as paths inside that folder.
func fileset(f *Files) function.Function {
	return stringFunc(cty.Set(cty.String), func(a []string) (cty.Value, error) {
		root := f.resolve(a[0])
		pattern := filepath.Join(root, a[1])
		if err := errors.Join(ordinary(a[0], root), ordinary(a[1], pattern)); err != nil {
			return cty.NilVal, err
		}
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(1, "not a pattern: %s", err)
		}
		var out []cty.Value
		for _, m := range matches {
			if ordinary(m, m) != nil {
				continue
			}
			info, err := os.Stat(m)
			rel, relErr := filepath.Rel(root, m)
			if err == nil && relErr == nil && info.Mode().IsRegular() {
				out = append(out, cty.StringVal(filepath.ToSlash(rel)))
			}
		}
		if len(out) == 0 {
			return cty.SetValEmpty(cty.String), nil
		}
		return cty.SetVal(out), nil
	}, "folder", "pattern")
}

func abspath(f *Files) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		abs, err := filepath.Abs(f.resolve(a[0]))
		return cty.StringVal(filepath.ToSlash(abs)), err
	}, "path")
}

func base(p string) string { return filepath.ToSlash(filepath.Base(p)) }
func dir(p string) string  { return filepath.ToSlash(filepath.Dir(p)) }

func path(of func(string) string) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) { return cty.StringVal(of(a[0])), nil }, "path")
}

// pathexpand replaces a leading ~ by the home folder.
func pathexpand(o Options) function.Function {
	return stringFunc(cty.String, func(a []string) (cty.Value, error) {
		rest, ok := strings.CutPrefix(a[0], "~")
		if !ok || (rest != "" && rest[0] != '/') {
			return cty.StringVal(a[0]), nil
		}
		home, _ := o.lookup("HOME")
		if home == "" {
			return cty.NilVal, errors.New("~ cannot be expanded: HOME is not set")
		}
		return cty.StringVal(home + rest), nil
	}, "path")
}

// templatefile renders a file with ${…} and %{…}, in which only the given names are defined. A template cannot render
// another template.
func templatefile(o Options, all map[string]function.Function) function.Function {
	functions := maps.Clone(all)
	parse := o.Template
	if parse == nil {
		parse = func(path string, src []byte) (hclsyntax.Expression, error) {
			expr, diags := hclsyntax.ParseTemplate(src, path, hcl.InitialPos)
			if diags.HasErrors() {
				return nil, diags
			}
			return expr, nil
		}
	}
	render := func(args []cty.Value) (cty.Value, error) {
		if !args[1].IsWhollyKnown() {
			return cty.UnknownVal(cty.String), nil
		}
		if t := args[1].Type(); !t.IsObjectType() && !t.IsMapType() {
			return cty.NilVal, function.NewArgErrorf(1,
				"expected an object with the names that the template uses, got %s", t.FriendlyName())
		}
		src, err := o.Files.text(args[0].AsString())
		if err != nil {
			return cty.NilVal, brief(err)
		}
		expr, err := parse(args[0].AsString(), []byte(src))
		if err != nil {
			return cty.NilVal, err
		}
		names := args[1].AsValueMap()
		if names == nil {
			names = map[string]cty.Value{} // to hcl, nil would mean that names are not allowed at all
		}
		v, diags := expr.Value(&hcl.EvalContext{Variables: names, Functions: functions})
		if diags.HasErrors() {
			return cty.NilVal, diags
		}
		return v, nil
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{text("path"), dynamicParam("names")},
		Type: func(args []cty.Value) (cty.Type, error) {
			if !args[0].IsKnown() || !args[1].IsWhollyKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := render(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return render(args) },
	})
}
