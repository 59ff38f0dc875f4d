package lineage_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

var update = flag.Bool("update", false, "write the golden file anew")

// hub stands for the cache of Hugging Face.
var hub string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lineage")
	if err != nil {
		panic(err)
	}
	hub = filepath.Join(dir, "hub")
	_ = os.Setenv("HF_HUB_CACHE", hub)
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func address(t *testing.T, s string) addr.Block {
	t.Helper()
	a, err := addr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sums is the lineage of a run with a model in a folder, a dataset and a lock file.
func sums(t *testing.T) *lineage.Lineage {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(hub, "datasets--acme--sums", "snapshots", "c0ffee", "data.parquet"), "")
	write(t, filepath.Join(dir, "sums.lock.hcl"), "locked\n")
	write(t, filepath.Join(dir, "model", "config.json"), "{}\n")
	write(t, filepath.Join(dir, "data", "sums.jsonl"), "1\n")
	write(t, filepath.Join(dir, "server", "app.py"), "print()\n")
	write(t, filepath.Join(dir, "venv", "pyvenv.cfg"), "home = /usr/bin\nversion = 3.12.3\n")
	packages := filepath.Join(dir, "venv", "lib", "python3.12", "site-packages")
	write(t, filepath.Join(packages, "torch-2.9.0.dist-info", "METADATA"), "")
	write(t, filepath.Join(packages, "Flash_Attn-1.dist-info", "direct_url.json"), `{"vcs_info":{"commit_id":"abc"}}`)
	r := &schema.Recipe{Name: "sums", Dir: dir, File: filepath.Join(dir, "sums.hcl"), Variables: []*schema.Variable{
		{Name: "steps", Value: cty.NumberIntVal(4), Source: "--var"},
		{Name: "token", Value: cty.StringVal("hidden"), Source: "--var", Sensitive: true},
		{Name: "size", Value: cty.NumberIntVal(1), Source: "default"},
	}}
	op := func(a string, config map[string]string) *plan.Operation {
		b := address(t, a)
		op := &plan.Operation{Address: b, Kind: b.Kind, Plugin: b.Plugin, Action: plan.Create, Devices: []string{"0"},
			Config: map[string]json.RawMessage{}, Block: &schema.Block{Addr: b, Schema: &schema.PluginSchema{
				Name: b.Plugin, Version: "1.2.0", Digest: "sha256:01", Binary: "sha256:02"}}}
		for name, v := range config {
			op.Config[name] = json.RawMessage(v)
		}
		return op
	}
	p := &plan.Plan{Operations: []*plan.Operation{
		op("trainer.grpo.policy", map[string]string{"model": `"model"`, "seed": "7", "api_key": `{"sensitive":"aa"}`}),
		op("environment.reward.sums", map[string]string{"dataset": `"data/sums.jsonl"`, "nested": `[{"again":"data/sums.jsonl"}]`,
			"command_dir": `"server"`, "train": `"acme/sums"`}),
		{Address: address(t, "environment.reward.old"), Action: plan.Stop},
	}}
	return lineage.Of(lineage.Run{ID: "r1", Recipe: "sums", File: "sums.hcl", Digest: "sha256:00",
		Applied: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, r, p, "0.2.0",
		func(b *schema.Block) string {
			if b.Addr.Kind != kind.Trainer {
				return ""
			}
			return filepath.Join(dir, "venv", "bin", "python")
		},
		lineage.Machine{Host: "gpu-1", OS: "linux", Arch: "amd64", CPUs: 8, GPUs: []string{"NVIDIA H100"}, Driver: "570.1"},
		&lineage.Parent{Run: "r0", Recipe: "base", Digest: "sha256:09", Address: address(t, "trainer.grpo.policy"), Step: 40})
}

// TestTheFormat compares the documented, versioned form with a golden file, in which a deliberate change shows.
//
//docs:recording.md Samples
func TestTheFormat(t *testing.T) {
	t.Parallel()
	l := sums(t)
	l.Checkpoint = &lineage.Checkpoint{Address: address(t, "trainer.grpo.policy"), Path: "/runs/step-50", Step: 50,
		Version: 51, Written: time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)}
	path := filepath.Join(t.TempDir(), lineage.FileName)
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "lineage.json")
	if *update {
		write(t, golden, string(got))
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; got\n%s", err, got)
	}
	if back, err := lineage.Read(path); err != nil || !reflect.DeepEqual(back.Run, l.Run) || back.Lock == nil {
		t.Errorf("read back: %+v, %v", back, err)
	}
	write(t, path, strings.Replace(string(got), `"format_version": "1.2"`, `"format_version": "2.0"`, 1))
	if _, err := lineage.Read(path); err == nil || !strings.Contains(err.Error(), `format version "2.0"`) {
		t.Errorf("a later format must be refused, got %v", err)
	}
}

// TestCheckpointsAreFoundWhereTheyAre: of files and folders, also archived ones; the lineage of a checkpoint that is
// gone is removed when the next one is written.
func TestCheckpointsAreFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	l, dir, a := sums(t), t.TempDir(), address(t, "trainer.grpo.policy")
	file, folder := filepath.Join(dir, "trainer", "step-1.bin"), filepath.Join(dir, "trainer.before-1", "step-2")
	write(t, file, "weights")
	write(t, filepath.Join(folder, "model.safetensors"), "weights")
	for step, path := range []string{file, folder, filepath.Join(dir, "gone")} {
		if err := l.WriteBeside(lineage.Checkpoint{Address: a, Path: path, Step: int64(step + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := lineage.Checkpoints(dir)
	if err != nil || len(found) != 2 || found[0].Checkpoint.Path != file || found[1].Checkpoint.Path != folder ||
		found[1].Checkpoint.Step != 2 {
		t.Fatalf("%v: %+v", err, found)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(dir, "trainer", "step-3.bin")
	write(t, next, "weights")
	if err := l.WriteBeside(lineage.Checkpoint{Address: a, Path: next, Step: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file + "." + lineage.FileName); !os.IsNotExist(err) {
		t.Errorf("the lineage of a removed checkpoint is left: %v", err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := sums(t), sums(t)
	if c := lineage.Compare(a, b); !c.Same() {
		t.Errorf("equal runs differ: %+v", c)
	}
	trainer, data := address(t, "trainer.grpo.policy"), address(t, "environment.reward.sums")
	changed := b.Blocks[trainer]
	changed.Python = &lineage.Python{Version: "3.12.3",
		Packages: map[string]string{"torch": "2.10.0", "flash-attn": "1 (abc)"}}
	changed.Version, changed.Binary, changed.Devices = "1.3.0", "sha256:03", []string{"1"}
	changed.Model = &lineage.Model{Name: "model", Revision: "sha256:other"}
	changed.Config = map[string]json.RawMessage{"model": json.RawMessage(`"model"`), "seed": json.RawMessage("8"),
		"api_key": json.RawMessage(`{"sensitive":"bb"}`)}
	b.Blocks[trainer] = changed
	delete(b.Blocks, data)
	b.Blocks[address(t, "environment.reward.other")] = lineage.Block{}
	b.Lock, b.Machine.GPUs = nil, []string{"NVIDIA H200"}
	c := lineage.Compare(a, b)
	c.CompareMetrics(map[string]map[string]float64{"t": {"loss": 1, "same": 2, "only": 3}},
		map[string]map[string]float64{"t": {"loss": 0.5, "same": 2}})
	what := func(list []lineage.Difference) (names []string) {
		for _, d := range list {
			names = append(names, d.What)
		}
		return names
	}
	for name, got := range map[string][2][]string{
		"recipe":   {what(c.Recipe), {"environment.reward.other", "environment.reward.sums", "trainer.grpo.policy: seed"}},
		"plugins":  {what(c.Plugins), {"lock file", "trainer.grpo.policy: version", "trainer.grpo.policy: program"}},
		"inputs":   {what(c.Inputs), {"trainer.grpo.policy: model"}},
		"packages": {what(c.Packages), {"trainer.grpo.policy: torch"}},
		"machine":  {what(c.Machine), {"trainer.grpo.policy: devices", "GPUs"}},
		"metrics":  {what(c.Metrics), {"t: loss"}},
	} {
		if !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("%s: got %q, want %q", name, got[0], got[1])
		}
	}
}

// TestRevisionsAreFoundLater: a program downloads what it names when it starts, so a checkpoint knows more than the
// plan.
func TestRevisionsAreFoundLater(t *testing.T) {
	t.Parallel()
	a := address(t, "trainer.grpo.policy")
	before := &lineage.Lineage{Blocks: map[addr.Block]lineage.Block{a: {Config: map[string]json.RawMessage{
		"model": json.RawMessage(`"acme/later"`), "data": json.RawMessage(`["acme/rows", "not there", 3]`)}}}}
	if b := before.Resolve("").Blocks[a]; b.Model.Revision != "" || b.Datasets != nil {
		t.Errorf("before it is downloaded: %+v", b)
	}
	t.Cleanup(func() { // the hub is that of all tests, also of this one's next run
		for _, name := range []string{"models--acme--later", "datasets--acme--rows"} {
			if err := os.RemoveAll(filepath.Join(hub, name)); err != nil {
				t.Error(err)
			}
		}
	})
	write(t, filepath.Join(hub, "models--acme--later", "refs", "main"), "f00d\n")
	write(t, filepath.Join(hub, "datasets--acme--rows", "snapshots", "old", "x"), "")
	write(t, filepath.Join(hub, "datasets--acme--rows", "snapshots", "new", "x"), "")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(hub, "datasets--acme--rows", "snapshots", "old"), long, long); err != nil {
		t.Fatal(err)
	}
	b := before.Resolve("").Blocks[a]
	if b.Model.Revision != "f00d" ||
		!reflect.DeepEqual(b.Datasets, []lineage.Model{{Name: "acme/rows", Revision: "new"}}) {
		t.Errorf("after it was downloaded: %+v", b)
	}
	if before.Blocks[a].Model != nil {
		t.Error("the lineage that others read was changed")
	}
}
