package interpreter

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Variables of Python: where compiled files are kept instead of beside their sources, and that they are not kept.
const (
	cachePrefix = "PYTHONPYCACHEPREFIX"
	dontWrite   = "PYTHONDONTWRITEBYTECODE"
)

// Bytecode gives variables with which Python keeps what it compiles in the user's cache, where it would compile an
// interpreter's packages anew in each process: they lie there as sources only, in an image that is read-only or whose
// PYTHONDONTWRITEBYTECODE forbids it. PyTorch, Transformers and vLLM then take twice as long to import. Nil: compiled
// files are there, or Python will put them there. environ holds the process's other variables; what it says of
// PYTHONPYCACHEPREFIX stays. Whether packages are compiled is told by the largest of them.
func Bytecode(python string, environ []string) map[string]string {
	set := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value
	}
	folder := largestPackage(python, set["PYTHONPATH"])
	if folder == "" || set[cachePrefix] != "" || isCompiled(folder) {
		return nil
	}
	if set[dontWrite] == "" && unix.Access(folder, unix.W_OK) == nil {
		return nil // the first import writes them
	}
	cache := bytecodeCache()
	if os.MkdirAll(cache, 0o755) != nil { // a home may be read-only, too
		return nil
	}
	return map[string]string{cachePrefix: cache, dontWrite: ""}
}

// ForgetBytecode removes what Python has compiled of the sources below a folder, which will not be run again.
func ForgetBytecode(folder string) {
	if filepath.IsAbs(folder) {
		_ = os.RemoveAll(filepath.Join(bytecodeCache(), folder)) // hardly anything is lost if it stays
	}
}

func bytecodeCache() string { return filepath.Join(filepath.Dir(Cache()), "pycache") }

// large are packages whose sources take a second and more to compile, the largest first. Most others of the field
// import one of them.
var large = []string{"torch", "transformers", "scipy", "sympy", "pandas", "datasets", "numpy"}

// largestPackage is the folder of the largest package that an interpreter has; empty: none at the usual places.
func largestPackage(python, path string) string {
	places := packageFolders(python, path)
	for _, name := range large {
		for _, place := range places {
			folder := filepath.Join(place, name)
			if _, err := os.Stat(filepath.Join(folder, "__init__.py")); err == nil {
				return folder
			}
		}
	}
	return ""
}

// packageFolders is where an interpreter looks for packages, and what usually holds them.
func packageFolders(python, path string) []string {
	places := filepath.SplitList(path)
	prefixes := map[string]bool{}
	for _, p := range []string{python, resolved(python)} {
		if filepath.IsAbs(p) {
			prefixes[filepath.Dir(filepath.Dir(p))] = true
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(prefixes)) {
		for _, pattern := range []string{"lib*/python3*/site-packages", "lib*/python3*/dist-packages",
			"local/lib/python3*/dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(prefix, pattern)) // the pattern is well-formed
			places = append(places, found...)
		}
	}
	return places
}

func resolved(python string) string {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return ""
	}
	return real
}

// isCompiled reports whether a package has compiled files beside its sources.
func isCompiled(folder string) bool {
	found, _ := filepath.Glob(filepath.Join(folder, "__pycache__", "__init__.*.pyc"))
	return len(found) > 0
}
