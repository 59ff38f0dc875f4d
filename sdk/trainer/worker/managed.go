package worker

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Managed says which settings of another project's trainer a block's config may hold. Its program reads the same file.
type Managed struct {
	// Managed are settings that recipe decides, each with what to write instead. A dot separates a section's settings.
	Managed map[string]string `json:"managed"`
	// Known are all others; empty: the project itself says which there are.
	Known []string `json:"known"`
}

// ReadManaged reads the file, which is JSON. It panics when the file is not in the binary or no such JSON.
func ReadManaged(source fs.FS, name string) Managed {
	data, err := fs.ReadFile(source, name)
	var m Managed
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", name, err))
	}
	return m
}

// Problems are what is wrong with the names in config. instead may answer for a name that Managed does not list;
// project is how the project is called.
func (m Managed) Problems(config map[string]any, project string, instead func(string) string) []spec.Problem {
	return m.problems(config, cty.GetAttrPath("config"), "", project, instead)
}

func (m Managed) problems(section map[string]any, at cty.Path, prefix, project string, instead func(string) string,
) (problems []spec.Problem) {
	for _, name := range slices.Sorted(maps.Keys(section)) {
		path := at.GetAttr(name)
		say := m.Managed[prefix+name]
		if say == "" && instead != nil {
			say = instead(prefix + name)
		}
		inner, isSection := section[name].(map[string]any)
		switch {
		case say != "":
			problems = append(problems, spec.Problem{Path: path, Summary: fmt.Sprintf("%s of %s is not set here",
				prefix+name, project), Detail: strings.ToUpper(say[:1]) + say[1:] + "."})
		case len(m.Known) > 0 && !slices.Contains(m.Known, prefix+name):
			problems = append(problems, spec.Problem{Path: path, Summary: fmt.Sprintf("%s has no setting %s", project,
				prefix+name), Detail: "config holds " + project + "'s own settings under their own names."})
		case isSection && prefix == "" && len(m.Known) == 0:
			problems = append(problems, m.problems(inner, path, name+".", project, instead)...)
		}
	}
	return problems
}
