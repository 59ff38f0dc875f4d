//go:build !linux

package store

import "os"

// datasync forces a file's contents to the disk.
func datasync(f *os.File) error { return f.Sync() }
