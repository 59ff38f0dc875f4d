package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Args collects a command line; each method leaves out what was not set.
type Args []string

// Add appends arguments as they stand.
func (a *Args) Add(args ...string) { *a = append(*a, args...) }

// Text appends a name and its value unless the value is empty.
func (a *Args) Text(name, value string) {
	if value != "" {
		a.Add(name, value)
	}
}

// Number appends a name and its value if that is above 0.
func (a *Args) Number(name string, value int64) { a.Above(name, value, 0) }

// Above appends a name and its value if that is above a limit.
func (a *Args) Above(name string, value, limit int64) {
	if value > limit {
		a.Add(name, strconv.FormatInt(value, 10))
	}
}

// Float appends a name and its value if that is above 0.
func (a *Args) Float(name string, value float64) {
	if value > 0 {
		a.Add(name, strconv.FormatFloat(value, 'g', -1, 64))
	}
}

// Integer appends a name and its value, if there is one.
func (a *Args) Integer(name string, value *int64) {
	if value != nil {
		a.Add(name, strconv.FormatInt(*value, 10))
	}
}

// JSON appends a name and its value, an object, as JSON, if there is one.
func (a *Args) JSON(name string, value any) error {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write the value of %s as JSON: %w", name, err)
	}
	if text[0] != '{' {
		return fmt.Errorf("expected an object, { name = value, … }, got %s", text)
	}
	a.Add(name, string(text))
	return nil
}

// Flag appends a name if it is on.
func (a *Args) Flag(name string, on bool) {
	if on {
		a.Add(name)
	}
}

// Toggle appends the name for on or for off, and nothing if neither is set.
func (a *Args) Toggle(on, off string, value *bool) {
	switch {
	case value == nil:
	case *value:
		a.Add(on)
	default:
		a.Add(off)
	}
}

// CheckExtraArgs finds arguments in extra_args that the plugin sets itself. Managed names them, each with the attribute
// to use instead; empty: there is none, for the reason given.
func CheckExtraArgs(args []string, managed map[string]string, reason string) []spec.Problem {
	var problems []spec.Problem
	for i, arg := range args {
		flag := flagOf(arg)
		attribute, ok := managed[flag]
		if !ok {
			continue
		}
		detail := "The plugin sets " + flag + " itself: " + reason
		if attribute != "" {
			detail = fmt.Sprintf("Write %s = … in the block instead of %s in extra_args.", attribute, flag)
		}
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("extra_args").IndexInt(i), Summary: flag + " cannot be given in extra_args", Detail: detail,
		})
	}
	return problems
}

// flagOf is the name of an argument as engines' command lines know it: vLLM takes underscores for dashes.
func flagOf(arg string) string {
	flag, _, _ := strings.Cut(arg, "=")
	if strings.HasPrefix(flag, "--") {
		return strings.ReplaceAll(flag, "_", "-")
	}
	return flag
}

// Repeated warns of extra_args that stand in the place of what the block says: own is the command line that its
// attributes make. An engine takes the last one, and a plan counts with the attribute.
func Repeated(extra, own []string) []spec.Problem {
	var problems []spec.Problem
	for i, arg := range extra {
		flag := flagOf(arg)
		if !strings.HasPrefix(flag, "--") || !slices.ContainsFunc(own, func(o string) bool { return flagOf(o) == flag }) {
			continue
		}
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("extra_args").IndexInt(i), Warning: true,
			Summary: flag + " in extra_args stands in the place of what the block says",
			Detail: "Of an argument that is given twice the server takes the last, which a plan does not know. Write " +
				strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", "_") + " = … in the block instead.",
		})
	}
	return problems
}

// Environment is the environment of a server: Environ, changed by defaults, by what the recipe sets and by what the
// plugin's own workings depend on, in this order, with the devices, and with folders before PYTHONPATH.
func (l Launch) Environment(defaults, recipe, fixed map[string]string, folders ...string) []string {
	// Phases are read from the log as they happen. The server starts in the block's folder, and imports nothing from it.
	env := map[string]string{"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
	if l.Temporary != "" {
		env["TMPDIR"] = l.Temporary
		l.keepCompiled(env)
	}
	maps.Copy(env, defaults)
	maps.Copy(env, recipe)
	maps.Copy(env, fixed)
	if l.Devices != nil {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(l.Devices, ",")
	}
	if before := LookupEnv(l.Environ, env, "PYTHONPATH"); before != "" {
		folders = append(folders, before)
	}
	env["PYTHONPATH"] = strings.Join(folders, string(os.PathListSeparator))
	return MergeEnv(l.Environ, env)
}

// keepCompiled sets places for compiled code that survive the server. Torch's own default is the temporary folder.
// Triton has one that survives, but torch replaces it by a folder of its own in the middle of a start, and in another
// place of the start when it finds compiled graphs, so that a second start compiled its kernels again (6 to 10 s on an
// H200).
func (l Launch) keepCompiled(env map[string]string) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return
	}
	for variable, folder := range map[string]string{"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"} {
		folder = filepath.Join(cache, "recipe", folder)
		if LookupEnv(l.Environ, nil, variable) == "" && os.MkdirAll(folder, 0o755) == nil { // a home may be read-only
			env[variable] = folder
		}
	}
}

// LookupEnv finds a variable in env, then in base.
func LookupEnv(base []string, env map[string]string, name string) string {
	if v, ok := env[name]; ok {
		return v
	}
	for _, entry := range slices.Backward(base) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v
		}
	}
	return ""
}

// MergeEnv replaces in base the variables that env names, and sorts what it adds.
func MergeEnv(base []string, env map[string]string) []string {
	out := make([]string, 0, len(base)+len(env))
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := env[name]; !replaced {
			out = append(out, entry)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// IsPath tells a local folder from a hub name: "./model", "../m", "/models/m" and "~/m" are paths, "org/model" is a
// name.
func IsPath(model string) bool {
	return strings.HasPrefix(model, ".") || strings.HasPrefix(model, "/") || strings.HasPrefix(model, "~")
}

// ServedName is the name that clients send as model: the one that is set, else that of the model, or of its folder.
func ServedName(set, model string) string {
	switch {
	case set != "":
		return set
	case IsPath(model):
		return filepath.Base(filepath.Clean(model))
	}
	return model
}

// ResolvePath makes a local model's path absolute; hub names stay.
func ResolvePath(model, recipeDir string) string {
	switch {
	case !IsPath(model):
		return model
	case strings.HasPrefix(model, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, model[2:])
		}
		return model
	case filepath.IsAbs(model):
		return filepath.Clean(model)
	default:
		return filepath.Join(recipeDir, model)
	}
}
