package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/recipe-rl/recipe/sdk"
)

// Forbidden returns an error when this user may not look into the run directory, or into the folder of run directories
// that it lies in, and nil when it may or when neither exists.
func (d Dir) Forbidden() error {
	if _, err := os.Stat(d.file()); errors.Is(err, fs.ErrPermission) {
		return forbidden(d, err)
	}
	return nil
}

// ForbiddenHere is Forbidden for the run directories of all recipes in a folder.
func ForbiddenHere(recipeDir string) error {
	path := filepath.Join(recipeDir, folder)
	if _, err := os.ReadDir(path); errors.Is(err, fs.ErrPermission) {
		return forbidden(Dir(path), err)
	}
	return nil
}

// forbidden states whose run a directory holds that this user may not read. Other errors are returned as they are.
func forbidden(d Dir, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	path, owner := string(d), "another user"
	for range 2 { // the run directory, or the folder that it cannot be seen in
		if info, lerr := os.Lstat(path); lerr == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				owner = nameOfUser(int(s.Uid))
			}
			break
		}
		path = filepath.Dir(path)
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("%s belongs to user %s, and this user, %s, may not read it", path, owner,
			nameOfUser(os.Geteuid())),
		Err: err,
		Remedy: "its owner can look at the run and stop it; run recipe as that user, or copy the recipe to a folder of " +
			"your own, where it has a run of its own",
	}
}

func nameOfUser(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
