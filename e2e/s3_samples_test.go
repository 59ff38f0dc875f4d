//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/archive"
)

// TestS3Samples copies what a run samples to a real store, which is killed meanwhile, as is the trajectory server. At
// the end each file of the record is there, byte for byte.
func TestS3Samples(t *testing.T) {
	s := newS3(t)
	r := &run{t: t, dir: t.TempDir(), recipe: "s3.hcl", trainer: "trainer.tiny.policy"}
	text := strings.NewReplacer("steps        = 100000", "steps = 120", "store        = \"STORE\"", "").Replace(s3Recipe) +
		"trajectories \"builtin\" \"default\" {\n samples_store = \"" + s.address() + "\"\n restart { attempts = 3 }\n}\n"
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cleanup)
	const server = "trajectories.builtin.default"
	r.apply()
	r.stepped(0)
	s.kill()
	r.killBlock(server)
	r.await(time.Minute, "the server to be restarted", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == server
	})
	s.start()
	r.stepped(r.last())
	if err := r.wait(3 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	here := filepath.Join(r.dir, ".recipe", "s3", "samples", server)
	copies, _ := filepath.Glob(filepath.Join(s.folder, "runs", "mine", server, "*", "samples-*"))
	if len(copies) != 1 {
		t.Fatalf("the store has %v", copies)
	}
	var m archive.Manifest
	manifest, err := os.ReadFile(filepath.Join(copies[0], "manifest.json"))
	if err == nil {
		err = json.Unmarshal(manifest, &m)
	}
	if err != nil || !m.Complete || m.Missing != 0 {
		t.Fatalf("the manifest is %+v, %v", m, err)
	}
	files, _ := filepath.Glob(filepath.Join(here, "0*"))
	if len(files) != len(m.Files) || len(files) < 4 {
		t.Errorf("the record has the files %v, the store %+v", files, m.Files)
	}
	for _, path := range files {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(copies[0], filepath.Base(path))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another in the store: %v", filepath.Base(path), err)
		}
	}
}
