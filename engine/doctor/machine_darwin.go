package doctor

import "golang.org/x/sys/unix"

// memoryOf counts free and purgeable pages as available; macOS has no figure of its own for that.
func memoryOf() (total, available uint64, err error) {
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
