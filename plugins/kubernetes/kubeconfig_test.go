package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of a kubeconfig file of a recipe's folder, 16 MiB of YAML would become 850 MB in memory.
func TestAHugeKubeconfigIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.Repeat("- a\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := connect(Config{Kubeconfig: path})
	if err == nil || !strings.Contains(err.Error(), "more than 2097152 bytes") {
		t.Errorf("connect: %v", err)
	}
	k := &kubernetes{config: Config{Kubeconfig: path}}
	if reads := k.Reads(); len(reads) != 1 || reads[0] != path {
		t.Errorf("it reads %v", reads)
	}
}
