package vllm

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// machine is what a server may use of where it runs. It is the same at each start: a server that an engine has left
// behind is taken over where it would be started in the same way.
type machine struct {
	cores  int    // of the machine, or what a container may use of them
	shared uint64 // bytes of shared memory, in use or not
}

// here is this machine.
func here() machine {
	m := machine{cores: runtime.GOMAXPROCS(0)}
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		m.shared = s.Blocks * uint64(s.Bsize)
	}
	return m
}
