package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// writerEnv tells the test binary to be the program that writes until it is killed: FOLDER FIRST-ID.
const writerEnv = "RECIPE_TEST_STORE_WRITER"

// writeUntilKilled puts groups and lets most of them end soon, so that files are written again and again. It says
// what it is about to do and what is confirmed.
func writeUntilKilled(dir string, id uint64) error {
	d, err := OpenDisk(dir, DiskOptions{Always: true, SegmentBytes: smallFile})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := d.Scan(ctx, func(uint64, Meta) error { return nil }); err != nil {
		return err
	}
	for ; ; id++ {
		if err := d.Submit(Change{Put: []Entry{entry(id, 2000)}}).Wait(ctx); err != nil {
			return err
		}
		fmt.Println("put", id)
		if id%50 == 0 {
			continue
		}
		fmt.Println("ending", id)
		if err := d.Submit(Change{End: []uint64{id}}).Wait(ctx); err != nil {
			return err
		}
		fmt.Println("ended", id)
	}
}

// TestGroupsAfterAPowerLoss: the program is killed at a random moment and the power is lost. What was confirmed is
// there, and what has ended does not come back from a file that was written again. It needs root and loop devices.
func TestGroupsAfterAPowerLoss(t *testing.T) {
	disk := disktest.Power(t)
	dir := filepath.Join(disk.Dir, "store")
	state := map[uint64]string{}
	next := uint64(1000)
	for range 25 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", writerEnv, dir, next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(rand.N(400*time.Millisecond), func() { _ = cmd.Process.Kill() })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var what string
			var id uint64
			if _, err := fmt.Sscan(lines.Text(), &what, &id); err == nil {
				state[id], next = what, max(next, id+2) // the one after it may be there, or not
			}
		}
		_ = cmd.Wait()
		disk.Cut()
		d, err := OpenDisk(dir, DiskOptions{Always: true, SegmentBytes: smallFile})
		if err != nil {
			t.Fatal(err)
		}
		there := scan(t, d).groups
		for id, what := range state {
			_, is := there[id]
			if what == "put" && !is || what == "ended" && is {
				t.Errorf("group %d, %q before the power was lost: there after it: %t", id, what, is)
			}
			if what == "put" && is {
				holds(t, d, id)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		disk.Sync()
	}
	if len(state) < 1000 {
		t.Errorf("only %d groups were written", len(state))
	}
}
