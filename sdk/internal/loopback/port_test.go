package loopback

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPortsAreGivenOnce has processes ask for ports at the same time: no two get the same.
func TestPortsAreGivenOnce(t *testing.T) {
	const many, variable = 1500, "LOOPBACK_TEST_TABLE"
	if path := os.Getenv(variable); path != "" {
		table := openTable(path)
		for range many {
			port, err := table.free()
			if err != nil {
				fmt.Println(err)
			} else {
				fmt.Println("PORT", port)
			}
		}
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // the locks end with the process
		return
	}
	path := filepath.Join(t.TempDir(), "ports")
	by := map[int]int{}
	for process := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestPortsAreGivenOnce$")
		cmd.Env = append(os.Environ(), variable+"="+path)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		lines := bufio.NewScanner(out)
		for range many {
			var port int
			if !lines.Scan() {
				t.Fatal("a process has ended")
			}
			if _, err := fmt.Sscanf(lines.Text(), "PORT %d", &port); err != nil {
				t.Fatalf("process %d: %s", process, lines.Text())
			}
			if other, ok := by[port]; ok {
				t.Fatalf("processes %d and %d have port %d", other, process, port)
			}
			by[port] = process
		}
	}
}

// TestAPortThatWasHeldLongEnoughIsFree gives back what a server must have bound by then.
func TestAPortThatWasHeldLongEnoughIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports")
	table := openTable(path)
	port, err := table.free()
	if err != nil {
		t.Fatal(err)
	}
	table.held[port] = time.Now().Add(-heldFor - time.Second)
	if _, err := table.free(); err != nil {
		t.Fatal(err)
	}
	if _, ok := table.held[port]; ok {
		t.Errorf("port %d is held for ever", port)
	}
}

// TestPortsWithoutATable gives ports where the file cannot be made.
func TestPortsWithoutATable(t *testing.T) {
	table := openTable(filepath.Join(t.TempDir(), "no", "folder"))
	if _, err := table.free(); err != nil || table.file != nil {
		t.Errorf("%v, file %v", err, table.file)
	}
}

// A lock that cannot be had for another reason than that it is held is an error of its own: not all ports are taken.
func TestAFailedLockIsNotAPortThatIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = readOnly.Close() }()
	table := openTable(path)
	defer func() { _ = table.file.Close() }()
	table.file = readOnly // the system refuses to lock it for writing
	_, err = table.free()
	if err == nil || !strings.Contains(err.Error(), "lock "+path) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got %v, want the failure of the lock and what to do", err)
	}
}

// A table that another user has made first is not used: they could hold every port. The next place is.
func TestATableOfAnotherUserIsNotUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	if err := os.WriteFile(theirs, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	table := openFirst([]string{theirs, ours})
	if table.file == nil || table.file.Name() != ours {
		t.Fatalf("the table is %v", table.file)
	}
	defer func() { _ = table.file.Close() }()
	if _, err := table.free(); err != nil {
		t.Error(err)
	}
}
