package trust

import (
	"context"
	"os/exec"
	"sync"
	"time"
)

// probeTimeout bounds the one try of bubblewrap.
const probeTimeout = 5 * time.Second

// bubblewrap is the path of a bwrap that starts programs here; empty: there is none. An installed one fails in a
// container without user namespaces, so it is tried.
var bubblewrap = sync.OnceValue(func() string {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(confinement(nil), "true")...)
	cmd.Env, cmd.WaitDelay = []string{"PATH=/usr/bin:/bin"}, time.Second
	if cmd.Run() != nil {
		return ""
	}
	return path
})

// confinement are the options of bubblewrap: no network, no other processes, and a file system that is read-only but
// for some folders.
func confinement(writable []string) []string {
	argv := []string{"--die-with-parent", "--unshare-net", "--unshare-ipc", "--unshare-pid", "--ro-bind", "/", "/",
		"--dev", "/dev",
		"--proc", "/proc"}
	for _, dir := range writable {
		argv = append(argv, "--bind", dir, dir)
	}
	return append(argv, "--")
}

// Confine returns how to run a program that is only asked what it is: where bubblewrap works, without network and with
// a file system that is read-only but for the folders named; elsewhere as it is.
func Confine(argv []string, writable ...string) []string {
	path := bubblewrap()
	if path == "" {
		return argv
	}
	return append(append([]string{path}, confinement(writable)...), argv...)
}
