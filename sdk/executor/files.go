package executor

import (
	"github.com/zclconf/go-cty/cty"
)

// Files are the attributes by which an executor's block says how files reach the machines of its jobs. An executor
// whose configuration embeds it hands over Job.Input, and runs jobs without a Dir.
type Files struct {
	Files   string   `recipe:"files" default:"shared" enum:"shared,staged" doc:"shared: the machines see the folder of the recipe, the recipe program and Python environments at the same paths as the engine's. staged: they need not; the agent fetches what its block needs from the engine, by digest, and the engine fetches what the block writes"`
	Scratch string   `recipe:"scratch" default:"~/.cache/recipe" doc:"with files = \"staged\": the folder on each machine for staged files, which jobs of this user share. It may begin with ~ or with an environment variable of the job, such as $TMPDIR"`
	Stage   []string `recipe:"stage" doc:"with files = \"staged\": the files and folders of the recipe's folder that reach the machines; default: all of it except names that begin with a dot"`
}

// FilesOf reads these attributes from the configuration of any executor; one without them shares files.
func FilesOf(config cty.Value) Files {
	if config != cty.NilVal {
		config, _ = config.UnmarkDeep()
	}
	text := func(name, otherwise string) string {
		if v := attribute(config, name); v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			return v.AsString()
		}
		return otherwise
	}
	f := Files{Files: text("files", "shared"), Scratch: text("scratch", "~/.cache/recipe")}
	if list := attribute(config, "stage"); list.IsWhollyKnown() && !list.IsNull() && list.CanIterateElements() {
		for _, v := range list.AsValueSlice() {
			if v.Type() == cty.String && !v.IsNull() {
				f.Stage = append(f.Stage, v.AsString())
			}
		}
	}
	return f
}

func attribute(config cty.Value, name string) cty.Value {
	if config == cty.NilVal || config.IsNull() || !config.Type().IsObjectType() || !config.Type().HasAttribute(name) {
		return cty.NullVal(cty.DynamicPseudoType)
	}
	return config.GetAttr(name)
}

// Staged reports whether files are staged.
func (f Files) Staged() bool { return f.Files == "staged" }
