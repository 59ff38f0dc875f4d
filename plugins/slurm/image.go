package slurm

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Image is an image of Apptainer, or of Singularity, from which it came, in which the blocks of an executor run.
type Image struct {
	Path    string   `recipe:"image" doc:"Apptainer image, a .sif file or a folder, in which jobs run; it must be at this path on the machines. The block gets the environment variables of the image"`
	Options []string `recipe:"image_options" doc:"options of apptainer exec, one in each element, such as \"--bind=/scratch\"; --nv is added for jobs with GPUs unless --rocm or --nvccli is here"`
}

// problems are what no machine could run.
func (i Image) problems() []spec.Problem {
	var out []spec.Problem
	if i.Path != "" && (!filepath.IsAbs(i.Path) || strings.ContainsAny(i.Path, "\n\r")) {
		out = append(out, spec.Problem{Path: cty.GetAttrPath("image"), Summary: "Not the path of an image",
			Detail: fmt.Sprintf("Expected an absolute path, such as \"/shared/images/rl.sif\"; got %q. An image of a "+
				"registry becomes such a file by apptainer pull rl.sif docker://IMAGE.", i.Path)})
	}
	if i.Path == "" && len(i.Options) > 0 {
		out = append(out, spec.Problem{Path: cty.GetAttrPath("image_options"), Summary: "Options without an image",
			Detail: "image_options has options for the container of an image, and there is no image: add it, or remove them."})
	}
	for n, o := range i.Options {
		if !strings.HasPrefix(o, "-") || strings.ContainsAny(o, "\n\r") {
			out = append(out, spec.Problem{Path: cty.GetAttrPath("image_options").IndexInt(n),
				Summary: "Not an option of apptainer exec",
				Detail:  fmt.Sprintf("Expected an option with its value, such as \"--bind=/scratch\"; got %q.", o)})
		}
	}
	return out
}

// prepare are the lines of a script before its command: they find the program that makes containers, and name the
// environment variables that the image sets, and those of other machines' files, which say nothing in it.
func (i Image) prepare() string {
	if i.Path == "" {
		return ""
	}
	return "container=$(command -v apptainer || command -v singularity) || { " +
		`echo "image: neither apptainer nor singularity is in PATH of $(hostname): add what makes it so to setup, such as ` +
		`\"module load apptainer\"" >&2; exit 127; }` + "\n" +
		`variables=$("$container" exec --cleanenv` + words(i.Options) + " " + quote(i.Path) + " env </dev/null) || exit\n" +
		`variables=$(sed -nE 's/^([A-Za-z_][A-Za-z0-9_]*)=.*/\1/p' <<<"$variables" | ` +
		`grep -vxE 'HOME|PWD|OLDPWD|SHLVL|_')` + "\n" +
		"export " + executor.PassVariable + `="${` + executor.PassVariable + "-}," + strings.Join(ofTheImage(), ",") +
		`,${variables//$'\n'/,}"` + "\n"
}

// ofTheImage are the variables of which a block has those of its container, or none.
func ofTheImage() []string {
	return slices.DeleteFunc(executor.FileVariables(), func(name string) bool {
		return slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "XDG_*", "GOCOVERDIR"}, name)
	})
}

// prefix are the words before a job's command.
func (i Image) prefix(gpus int) string {
	if i.Path == "" {
		return ""
	}
	options := slices.Clone(i.Options)
	toGPUs := func(o string) bool { return o == "--nv" || o == "--nvccli" || o == "--rocm" }
	if gpus > 0 && !slices.ContainsFunc(options, toGPUs) {
		options = append(options, "--nv")
	}
	return ` "$container" exec` + words(options) + " " + quote(i.Path)
}

// words are arguments, quoted for a shell, each after a space.
func words(arguments []string) string {
	var b strings.Builder
	for _, a := range arguments {
		b.WriteString(" " + quote(a))
	}
	return b.String()
}
