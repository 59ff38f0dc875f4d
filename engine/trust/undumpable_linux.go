package trust

import "golang.org/x/sys/unix"

// HideEnvironment keeps other processes of this user, such as a program that a recipe brings, from reading this
// process's environment and memory in /proc. Programs that it starts are not affected. Root reads them all the same.
func HideEnvironment() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // it fails for no process that could read /proc
}
