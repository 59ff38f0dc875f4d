package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// TestTheScriptsOfAnImage compares with testdata/image.sbatch and image-gang.sbatch.
func TestTheScriptsOfAnImage(t *testing.T) {
	t.Parallel()
	s := New(Config{Setup: []string{"module load apptainer"},
		Image: Image{Path: "/shared/it's.sif", Options: []string{"--bind=/scratch"}}}, "")
	j := executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
		Argv: []string{"/opt/recipe", "agent", "--bootstrap", "/shared/agent.json"}, Dir: "/shared",
		Resources: executor.Resources{Nodes: 2, GPUs: 8}}
	matches(t, "image.sbatch", s, j)
	other := j
	other.Block, other.Nodes, other.GPUs = "environment.arithmetic.sums", 1, 0
	got, err := s.(executor.Gangs).RenderTogether([]executor.Job{j, other})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "image-gang.sbatch", got)
}

// apptainer is what the script calls: env prints what an image sets, and any other program gets it.
const apptainer = `#!/bin/bash
shift
[ "$1" = --cleanenv ] && { shift; clean=1; }
while [[ $1 == --* ]]; do shift; done
[ -d "$1" ] || { echo "FATAL: could not open image $1" >&2; exit 255; }
shift
[ "${clean-}" ] && exec env -i PATH=/image/bin:/usr/bin:/bin CUDA_HOME=/image/cuda "$@"
export PATH=/image/bin:/usr/bin:/bin CUDA_HOME=/image/cuda
exec "$@"
`

// TestTheEnvironmentOfAnImageIsNamed runs a script with a stand-in for Apptainer; the real one runs in TestSlurmImage.
func TestTheEnvironmentOfAnImageIsNamed(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "bash", "-c", "declare -A a").Run() != nil {
		t.Skip("the bash of this machine has no associative arrays (bash 4); those of Slurm's machines have")
	}
	bin, image := t.TempDir(), t.TempDir()
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(bin, "apptainer"), []byte(apptainer), 0o755); err != nil {
		t.Fatal(err)
	}
	printed := func(path, image string) (string, error) {
		s := New(Config{Setup: []string{"export LOADED=1"},
			Image: Image{Path: image, Options: []string{"--bind=/scratch"}}}, "")
		r, err := s.Render(executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
			Argv: []string{"/usr/bin/env"}, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		bash := exec.CommandContext(t.Context(), "bash", "-c", r.Text)
		bash.Env = []string{"PATH=" + path}
		out, err := bash.CombinedOutput()
		return string(out), err
	}
	out, err := printed(bin+":/usr/bin:/bin", image)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var passed []string
	for line := range strings.Lines(out) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), executor.PassVariable+"="); ok {
			passed = strings.Split(list, ",")
		}
	}
	for _, want := range []string{"LOADED", "CUDA_HOME", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CONDA_PREFIX"} {
		if !slices.Contains(passed, want) {
			t.Errorf("%s is not passed on from the container: %v", want, passed)
		}
	}
	for _, unwanted := range []string{"HOME", "_", "PWD"} {
		if slices.Contains(passed, unwanted) {
			t.Errorf("%s is passed on", unwanted)
		}
	}
	out, err = printed(bin+":/usr/bin:/bin", "/nowhere.sif")
	if err == nil || !strings.Contains(out, "could not open image") {
		t.Errorf("an image that is not there: %v, %s", err, out)
	}
	only := t.TempDir()
	for _, program := range []string{"bash", "hostname", "env"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("this machine has no %s", program)
		}
		if err := os.Symlink(path, filepath.Join(only, program)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := printed(only, image); err == nil || !strings.Contains(out, "neither apptainer nor singularity") {
		t.Errorf("a machine without either: %v, %s", err, out)
	}
}

func TestImagesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for want, i := range map[string]Image{
		"apptainer pull rl.sif docker://": {Path: "docker://pytorch/pytorch"},
		"an absolute path":                {Path: "rl.sif"},
		"there is no image":               {Options: []string{"--bind=/scratch"}},
		`got "/scratch"`:                  {Path: "/rl.sif", Options: []string{"--bind", "/scratch"}},
	} {
		c := Config{Image: i}
		problems := c.Validate(c)
		if len(problems) != 1 || !strings.Contains(problems[0].Detail, want) {
			t.Errorf("%+v: %+v, expected %q", i, problems, want)
		}
	}
	c := Config{Image: Image{Path: "/rl.sif", Options: []string{"--bind=/scratch", "-C"}}}
	if problems := c.Validate(c); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
}
