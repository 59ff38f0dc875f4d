package usage

import "golang.org/x/sys/unix"

// Memory returns the bytes of memory of this machine, and those that a program could still get: free and purgeable
// pages, as macOS has no figure of its own for that.
func Memory() (total, available uint64, err error) {
	total, err = unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0, err
	}
	free, err := unix.SysctlUint32("vm.page_free_count")
	if err != nil {
		return 0, 0, err
	}
	purgeable, err := unix.SysctlUint32("vm.page_purgeable_count")
	if err != nil {
		return 0, 0, err
	}
	return total, (uint64(free) + uint64(purgeable)) * uint64(unix.Getpagesize()), nil
}
