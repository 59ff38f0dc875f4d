package parse

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// ReadFile reads a file that a person has named. Devices, sockets and named pipes are an error: a read of one may never
// end. A descriptor that the caller has opened is read, so
// that --var-file <(…) and /dev/stdin work, and so is /dev/null. A name with a line break is an error: where it is
// printed, it would make lines of its own.
func ReadFile(path string) ([]byte, error) {
	if strings.ContainsFunc(path, unicode.IsControl) {
		return nil, fmt.Errorf("the path %q has a control character, such as a line break: rename the file or folder", path)
	}
	if info, err := os.Stat(path); err == nil && !opened(path) {
		if err := Regular(path, info.Mode()); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	src, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(src) > maxRead {
		err = fmt.Errorf("the file %s has more than %d MiB", path, maxRead>>20)
	}
	return src, err
}

// ReadInFolder reads a file that a recipe names, or that lies in a folder: unlike ReadFile, no descriptor of this
// process. Standard input may be a protocol, or never end.
func ReadInFolder(path string) ([]byte, error) {
	if err := InFolder(path); err != nil {
		return nil, err
	}
	return ReadFile(path)
}

// InFolder refuses paths that stand for a descriptor of this process.
func InFolder(path string) error {
	real, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil { // reading it gives the reason
		real = filepath.Dir(path)
	}
	if opened(filepath.Join(real, filepath.Base(path))) || opened(filepath.Clean(path)) {
		return fmt.Errorf("the path %s is not a file of a folder, but something that this process was given open", path)
	}
	return nil
}

// maxRead is the most that is read of a file: a recipe's has at most maxFileBytes, and a sparse one may have terabytes
// on an empty disk.
const maxRead = 64 << 20

// ReadOpened reads those of paths that stand for what this process was given open, such as --var-file <(…): that can be
// read only once, and by no other process. A path that cannot be read is left out.
func ReadOpened(paths []string) map[string][]byte {
	out := map[string][]byte{}
	for _, path := range paths {
		if _, done := out[path]; done || !opened(path) {
			continue
		}
		if content, err := ReadFile(path); err == nil {
			out[path] = content
		}
	}
	return out
}

// Regular is an error for anything that is not a regular file.
func Regular(path string, mode fs.FileMode) error {
	what := "something else"
	switch mode.Type() {
	case 0:
		return nil
	case fs.ModeDir:
		what = "a folder"
	case fs.ModeNamedPipe:
		what = "a named pipe"
	case fs.ModeSocket:
		what = "a socket"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		what = "a device"
	}
	return fmt.Errorf("the path %s is not a regular file but %s", path, what)
}

// opened reports whether a path stands for a descriptor of this process: the shell makes such paths for <(…).
func opened(path string) bool {
	return path == "/dev/stdin" || path == os.DevNull || strings.HasPrefix(path, "/dev/fd/") ||
		strings.HasPrefix(path, "/proc/self/fd/")
}
