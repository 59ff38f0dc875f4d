package doctor

import (
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/usage"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Local is the machine that this process runs on; dir is where run directories will be.
func Local(dir string) Machine {
	return Machine{
		Dir:      dir,
		OS:       runtime.GOOS,
		LookPath: exec.LookPath, LookupEnv: os.LookupEnv,
		Run: func(ctx context.Context, name string, args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, name, args...)
			// Without secrets, and without another version of Go, which a go.mod in the folder of a recipe may name.
			cmd.Env = append(interpreter.Asking(os.Environ()), "GOTOOLCHAIN=local")
			cmd.WaitDelay = time.Second
			out, err := cmd.Output()
			return string(out), err
		},
		Listen: func(address string) error {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			return l.Close()
		},
		Writable: func(dir string) error { return unix.Access(dir, unix.W_OK) },
		Disk: func(dir string) (uint64, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return 0, err
			}
			return s.Bavail * uint64(s.Bsize), nil
		},
		Memory: usage.Memory,
		Files: func() (uint64, error) {
			var r unix.Rlimit
			err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
			return r.Cur, err
		},
		Processes: func() (uint64, error) {
			var r unix.Rlimit
			err := unix.Getrlimit(unix.RLIMIT_NPROC, &r)
			return r.Cur, err
		},
		Size: func(dir string) (uint64, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return 0, err
			}
			return s.Blocks * uint64(s.Bsize), nil
		},
		// Some are beside a recipe of someone else.
		ReadFile: func(path string) ([]byte, error) { return regular.FollowFile(path, 1<<20) },
		Interfaces: func() (names []string, err error) {
			list, err := net.Interfaces()
			for _, i := range list {
				names = append(names, i.Name)
			}
			return names, err
		},
	}
}
