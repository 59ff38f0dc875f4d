package atropos

import (
	"os/exec"
	"strings"
	"testing"
)

// An HTTP client of an environment quotes the URL with its token in errors.
func TestTokensStayOutOfWhatAnEnvironmentWrites(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	const program = `
import logging, sys
sys.path.insert(0, "launcher")
import recipe_hide
recipe_hide.install({"env": {"rollout_server_url": "http://h:1/t/s3cret-s3cret"},
    "openai": [{"api_key": "k3y-k3y-k3y"}, {"api_key": "none"}]})
logging.basicConfig(level=logging.INFO)
print("posting to http://h:1/t/s3cret-s3cret/scored_data with k3y-k3y-k3y, none")
sys.stderr.writelines(["s3cret-s3cret\n"])
logging.error("url='http://h:1/t/s3cret-s3cret/scored_data'")
raise RuntimeError("http://h:1/t/s3cret-s3cret")
`
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Dir = "."
	out, _ := cmd.CombinedOutput() // it raises
	text := string(out)
	if strings.Contains(text, "s3cret") || strings.Contains(text, "k3y") {
		t.Errorf("a secret was written:\n%s", text)
	}
	if strings.Count(text, "<token>") != 5 || !strings.Contains(text, "none") || !strings.Contains(text, "RuntimeError") {
		t.Errorf("written:\n%s\nexpected the rest as it was", text)
	}
}
