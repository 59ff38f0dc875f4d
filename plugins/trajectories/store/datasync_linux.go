package store

import (
	"os"
	"syscall"
)

// datasync forces a file's contents to the disk; modification times need not be.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR { //nolint:errorlint // bare numbers
			return err
		}
	}
}
