package disktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Powered is an ext4 file system in a file. Cut takes its power: what no fsync has brought to the device is lost.
type Powered struct {
	// Dir is where it is mounted.
	Dir string

	t     *testing.T
	image string
}

// Power makes and mounts one until the test ends. It needs root and loop devices, so it is for `make power-loss` alone:
// elsewhere the test is skipped.
func Power(t *testing.T) *Powered {
	t.Helper()
	if os.Getenv("RECIPE_POWER_LOSS") == "" {
		t.Skip("make power-loss runs it: it mounts file systems")
	}
	d := &Powered{t: t, image: filepath.Join(t.TempDir(), "image"), Dir: t.TempDir()}
	d.run("truncate", "--size=96M", d.image)
	d.run("mkfs.ext4", "-q", d.image)
	d.attach()
	t.Cleanup(d.detach)
	return d
}

func (d *Powered) run(words ...string) {
	d.t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// attach mounts the disk as strictly as ext4 can: by itself it writes nothing back for five minutes, it does not order
// data before metadata, and a rename does not write the data of the file.
func (d *Powered) attach() {
	d.t.Helper()
	d.run("mount", "-o", "loop,commit=300,data=writeback,noauto_da_alloc", d.image, d.Dir)
}

// detach does not wait for what a killed command has left, such as its Python process.
func (d *Powered) detach() { d.run("umount", "--lazy", d.Dir) }

// Sync brings everything to the device.
func (d *Powered) Sync() {
	d.t.Helper()
	d.run("sync", "--file-system", d.Dir)
}

// Cut is the power loss: the disk goes on from a copy of what was on the device. Nothing may be writing to it.
func (d *Powered) Cut() {
	d.t.Helper()
	d.run("cp", "--sparse=always", d.image, d.image+".cut")
	d.detach()
	d.run("mv", d.image+".cut", d.image)
	d.attach()
}
