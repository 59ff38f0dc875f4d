package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Roots are the folders for this user's sockets, best first, whether they exist or not. The temporary folder comes
// before XDG_RUNTIME_DIR, which is removed when the user logs out while runs go on. The name in a shared folder can be
// guessed, and another user can make it first: the last root is in the home folder, where nobody else can.
func Roots() []string {
	name := fmt.Sprintf("recipe-%d", os.Geteuid())
	roots := []string{filepath.Join(os.TempDir(), name), filepath.Join("/tmp", name)}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		roots = append(roots, filepath.Join(dir, "recipe"))
	}
	roots = append(roots, filepath.Join("/var/tmp", name), filepath.Join("/run/user", strconv.Itoa(os.Geteuid()),
		"recipe"))
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		roots = append(roots, filepath.Join(home, ".recipe-sockets"))
	}
	var out []string
	for _, root := range roots {
		if !slices.Contains(out, root) {
			out = append(out, root)
		}
	}
	return out
}

// Root is the first of Roots that only this user can enter, created if missing, and whose path has at most limit
// bytes.
func Root(limit int) (string, error) {
	var errs []error
	for _, root := range Roots() {
		if len(root) > limit {
			errs = append(errs, fmt.Errorf("%s is longer than %d bytes, so a socket's path would be too long", root,
				limit))
			continue
		}
		err := makeRoot(root)
		if err == nil {
			return root, nil
		}
		errs = append(errs, err)
	}
	return "",
		fmt.Errorf(
			"there is no folder for sockets that only this user can enter; set TMPDIR or XDG_RUNTIME_DIR to a folder "+
				"that you own, with a short path: %w", errors.Join(errs...))
}

// Usable are those of Roots that exist and belong to this user alone.
func Usable() []string {
	return slices.DeleteFunc(Roots(), func(root string) bool {
		return checkParents(filepath.Dir(root)) != nil || CheckDir(root) != nil
	})
}

func makeRoot(root string) error {
	if err := checkParents(filepath.Dir(root)); err != nil {
		return err
	}
	// Mkdir, not MkdirAll: it fails if the path exists, whatever it is.
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckDir(root)
}

// nobody is the owner of files whose real owner is unknown in a user namespace.
const nobody = 65534

// checkParents checks that no other user could replace a folder below dir: every parent belongs to this user or to
// root, and is sticky where others may write to it.
func checkParents(dir string) error {
	dir, err := filepath.EvalSymlinks(dir) // macOS: /tmp and /var are links
	if err != nil {
		return err
	}
	for {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		// In a user namespace the system's own folders belong to nobody.
		mapped := filepath.Dir(filepath.Dir(dir)) != string(filepath.Separator)
		if uid := ownerOf(info); uid != 0 && uid != os.Geteuid() && (mapped || uid != nobody) {
			return &Error{dir, fmt.Sprintf("belongs to user %d", uid), "use another folder"}
		}
		if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return &Error{dir, "is writable by others and not sticky", "chmod go-w " + dir +
				", or use another folder"}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
