package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// known is the settings that may be known only when the block is started.
func (t *Trainer[C]) known() (map[string]any, error) {
	url, token, err := trajectories(t.program.Trajectories)
	if err != nil {
		return nil, err
	}
	data := map[string]any{"url": url}
	if token != "" {
		data["token"] = token
	}
	known := map[string]any{"data": data, "policy_version": t.req.Policy.Version, "wait_for_sync": len(t.req.SyncedBy) > 0}
	if t.program.Known == nil {
		return known, nil
	}
	own, err := t.program.Known()
	return merged(known, own), err
}

// settings is the rest of the worker's configuration: what the plugin says, and what only the supervisor knows.
func (t *Trainer[C]) settings(l *link) map[string]any {
	t.sent = t.program.Settings
	s := nested(t.program.Settings)
	put(s, "checkpoint_dir", t.req.CheckpointDir)
	put(s, "resume", t.req.Resume)
	put(s, "events_file", nil)     // they come over the connection
	put(s, "control", l.address()) // a socket's path could be longer than the system allows
	put(s, "control_token", l.token)
	return s
}

// merged is settings with more of them, by section.
func merged(settings, more map[string]any) map[string]any {
	out := nested(settings)
	for name, value := range more {
		section, ok := value.(map[string]any)
		if before, both := out[name].(map[string]any); ok && both {
			maps.Copy(before, section)
			continue
		}
		out[name] = value
	}
	return out
}

// nested copies settings with their sections.
func nested(settings map[string]any) map[string]any {
	out := maps.Clone(settings)
	for name, value := range out {
		if section, ok := value.(map[string]any); ok {
			out[name] = nested(section)
		}
	}
	return out
}

// Local makes the path of a model that is given relative to the recipe, or to the home folder, absolute; names of a hub
// stay.
func Local(model, recipeDir string) string {
	if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(model, "~/") {
		return filepath.Join(home, model[2:])
	}
	if (strings.HasPrefix(model, "./") || strings.HasPrefix(model, "../") || model == "." || model == "..") &&
		!filepath.IsAbs(model) {
		return filepath.Join(recipeDir, model)
	}
	return model
}

// trajectories finds the trajectory API.
func trajectories(ref *spec.Ref) (url, token string, err error) {
	if ref == nil {
		return "", "", &sdk.Error{Summary: "no trajectory API to take batches from", Remedy: "add a block trajectories to " +
			"the recipe, or set trajectories = … here"}
	}
	read := func(name string) string {
		if ref.Values == cty.NilVal || !ref.Values.Type().IsObjectType() || !ref.Values.Type().HasAttribute(name) {
			return ""
		}
		v, _ := ref.Values.GetAttr(name).Unmark()
		if v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
			return ""
		}
		return v.AsString()
	}
	if url = strings.TrimRight(read("url"), "/"); url == "" {
		return "", "", fmt.Errorf("output url of %s is not known", ref.Address)
	}
	return url, read("token"), nil
}

// Settings turns the fields of a configuration struct that are tagged `worker:"section.name"` into the program's nested
// settings. A nil pointer, an empty text and an empty list are left out, so that the program's default holds.
func Settings(config any) map[string]any {
	out := map[string]any{}
	collect(reflect.ValueOf(config), out)
	return out
}

func collect(v reflect.Value, out map[string]any) {
	t := v.Type()
	for i := range t.NumField() {
		field, value := t.Field(i), v.Field(i)
		path, named := field.Tag.Lookup("worker")
		if !named {
			if field.Anonymous && value.Kind() == reflect.Struct {
				collect(value, out)
			}
			if value.Kind() == reflect.Pointer && value.Type().Elem().Kind() == reflect.Struct && !value.IsNil() &&
				strings.HasSuffix(field.Tag.Get("recipe"), ",block") {
				collect(value.Elem(), out)
			}
			continue
		}
		if setting, ok := settingOf(field, value); ok {
			put(out, path, setting)
		}
	}
}

// settingOf is a field's value as the worker reads it; false when it was not set.
func settingOf(field reflect.StructField, value reflect.Value) (any, bool) {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return nil, false
		}
		if ref, ok := value.Interface().(*spec.Ref); ok {
			return ref.Address, true
		}
		return value.Elem().Interface(), true
	case reflect.String:
		return value.String(), value.Len() > 0
	case reflect.Slice:
		if value.Len() == 0 {
			return nil, false
		}
		if value.Type().Elem().Kind() != reflect.Struct {
			return value.Interface(), true
		}
		list := make([]any, value.Len())
		for i := range list {
			item := map[string]any{}
			collect(value.Index(i), item)
			list[i] = item
		}
		return list, true
	}
	return value.Interface(), true
}

// Defaults are what the settings of a configuration struct are when the recipe does not set them, in the form of
// Settings; nil where the program has none. A program that describes its settings has Description.Defaults.
func Defaults[C any]() map[string]any {
	out := map[string]any{}
	collectDefaults(reflect.TypeFor[C](), out)
	return out
}

func collectDefaults(t reflect.Type, out map[string]any) {
	for i := range t.NumField() {
		field := t.Field(i)
		path, named := field.Tag.Lookup("worker")
		if !named {
			if field.Anonymous && field.Type.Kind() == reflect.Struct {
				collectDefaults(field.Type, out)
			}
			if field.Type.Kind() == reflect.Pointer && strings.HasSuffix(field.Tag.Get("recipe"), ",block") {
				collectDefaults(field.Type.Elem(), out)
			}
			continue
		}
		text, ok := field.Tag.Lookup("default")
		var value any
		if ok && json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		put(out, path, value)
	}
}

// put sets a.b.c in nested maps.
func put(m map[string]any, path string, value any) {
	section, name, nested := strings.Cut(path, ".")
	if !nested {
		m[path] = value
		return
	}
	inner, ok := m[section].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[section] = inner
	}
	put(inner, name, value)
}

// difference is what in other is not in base, nested as both are. What base has and other has not goes back to the
// worker's default.
func difference(base, other, defaults map[string]any) map[string]any {
	out := map[string]any{}
	wanted := maps.Clone(other)
	for name := range base {
		if _, kept := other[name]; !kept {
			wanted[name] = defaults[name]
		}
	}
	for name, value := range wanted {
		old := base[name]
		oldSection, isOld := old.(map[string]any)
		section, isNew := value.(map[string]any)
		if isOld && isNew {
			inner, _ := defaults[name].(map[string]any)
			if d := difference(oldSection, section, inner); len(d) > 0 {
				out[name] = d
			}
			continue
		}
		if !reflect.DeepEqual(old, value) {
			out[name] = value
		}
	}
	return out
}
