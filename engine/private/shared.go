package private

import (
	"io/fs"
	"os"
	"path/filepath"
)

// NotShared refuses a file that every user of the machine may change, or may replace in its folder, also behind a link.
// It may belong to another user: settings of a team do.
func NotShared(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, p := range []string{real, filepath.Dir(real), filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		// In a folder with the sticky bit, such as the temporary one, only owners replace their files.
		if info.Mode().Perm()&0o002 == 0 || info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
			continue
		}
		return &Error{p, "can be changed by every user of the machine (mode " + info.Mode().Perm().String() + ")",
			"remove the permission: chmod o-w " + p}
	}
	return nil
}
