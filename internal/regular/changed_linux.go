package regular

import (
	"os"
	"syscall"
)

// Changed is when the system has last changed what it knows of a file, in nanoseconds since 1970; 0: it is not known.
// Unlike the time of its content, no program can set it.
func Changed(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}
