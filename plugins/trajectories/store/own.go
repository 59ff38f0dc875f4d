package store

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/recipe-rl/recipe/internal/regular"
)

// maxHoles is how many bytes of a file may be holes that is copied, which fills them.
const maxHoles = 1 << 30

// ownFile replaces a file that has another name, too, as in a backup of hard links, by a copy: bbolt writes in place. A
// file that a process has open, or that cannot be opened, is left alone: opening it says so.
func ownFile(path string) (err error) {
	f, err := openRegular(path, os.O_RDWR, 0)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Nlink < 2 || info.Size()-s.Blocks*512 > maxHoles {
		return nil
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // bbolt locks likewise
	}
	to, err := regular.Create(path+".new", 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	if err = errors.Join(err, to.Sync(), to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}
