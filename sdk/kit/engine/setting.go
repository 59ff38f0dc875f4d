package engine

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

// interpreterSettings are what decides which Python a block runs in.
func interpreterSettings() []string {
	return []string{"runtime.python", "runtime.venv", "runtime.requirements"}
}

// settingsOf are the settings of a block that its recipe sets to something else than their default, by their names.
func settingsOf[C any](req sdk.Request[C]) map[string]any {
	set := map[string]any{}
	addSettings(set, reflect.ValueOf(req.Config))
	if req.Runtime.Python != "" {
		set["runtime.python"] = req.Runtime.Python
	}
	if req.Runtime.Venv != "" {
		set["runtime.venv"] = req.Runtime.Venv
	}
	if len(req.Runtime.Requirements) > 0 {
		set["runtime.requirements"] = req.Runtime.Requirements
	}
	return set
}

func addSettings(set map[string]any, config reflect.Value) {
	for i := range config.NumField() {
		field, value := config.Type().Field(i), config.Field(i)
		if field.Anonymous && value.Kind() == reflect.Struct {
			addSettings(set, value)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("recipe"), ",")
		if name == "" || value.IsZero() {
			continue
		}
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if fmt.Sprint(value.Interface()) != field.Tag.Get("default") {
			set[name] = value.Interface()
		}
	}
}

// flag is an argument of a program as its messages name it.
var flag = regexp.MustCompile(`--([a-z][a-z0-9-]+)`)

// anySetting stands for all settings of a block that a message names, or whose value it quotes.
const anySetting = "*"

// place leads to the setting that a message of the program is about: an argument that it names, or one of those that
// it can be about. Of several that the recipe gives, the one whose value it quotes, else the first. Nil: none is given.
func (d Diagnosis) place(settings []string, said string) cty.Path {
	var candidates []string
	for _, m := range flag.FindAllStringSubmatch(said, -1) {
		candidates = append(candidates, strings.ReplaceAll(m[1], "-", "_"))
	}
	for _, name := range settings {
		if name == anySetting {
			candidates = append(candidates, d.mentioned(said)...)
		} else {
			candidates = append(candidates, name)
		}
	}
	first := ""
	for _, name := range candidates {
		value, ok := d.given[name]
		if ok && quotes(said, value) {
			return pathOf(name)
		}
		if ok && first == "" {
			first = name
		}
	}
	return pathOf(first)
}

// mentioned are the settings that a text names, then those whose value it quotes.
func (d Diagnosis) mentioned(said string) (named []string) {
	var quoted []string
	for _, name := range slices.Sorted(maps.Keys(d.given)) {
		switch {
		case hasWord(said, name):
			named = append(named, name)
		case quotes(said, d.given[name]):
			quoted = append(quoted, name)
		}
	}
	return append(named, quoted...)
}

// pathOf is the path of a setting; nil for none.
func pathOf(setting string) (path cty.Path) {
	if setting == "" {
		return nil
	}
	for part := range strings.SplitSeq(setting, ".") {
		path = path.GetAttr(part)
	}
	return path
}

// quotes reports whether a text holds a value. Those of one or two characters are found anywhere.
func quotes(text string, value any) bool {
	if list, ok := value.([]string); ok {
		value = strings.Join(list, " ")
	}
	quoted := fmt.Sprint(value)
	return len(quoted) > 2 && hasWord(text, quoted)
}

// hasWord reports whether a text has a word, and not as a part of a longer one.
func hasWord(text, word string) bool {
	inWord := func(c byte) bool {
		return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
	}
	for rest := text; ; {
		i := strings.Index(rest, word)
		if i < 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || !inWord(rest[i-1])) && (end == len(rest) || !inWord(rest[end])) {
			return true
		}
		rest = rest[i+1:]
	}
}
