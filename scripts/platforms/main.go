// Command platforms sees that this repository compiles for other systems and processors, each given as GOOS/GOARCH. It
// checks types of all packages, of their tests and of what they import, and generates no code: a build takes ten times
// as long.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	status := 0
	for _, platform := range os.Args[1:] {
		problems, err := check(platform)
		if err != nil {
			problems = append(problems, err.Error())
		}
		fmt.Printf("%s: %d errors\n", platform, len(problems))
		for _, p := range problems {
			fmt.Println(p)
			status = 1
		}
	}
	os.Exit(status)
}

// check returns what does not compile for platform in the module of the working directory.
func check(platform string) ([]string, error) {
	system, processor, _ := strings.Cut(platform, "/")
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Env:        append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor),
		BuildFlags: []string{"-tags=e2e"},
		Tests:      true,
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, p := range loaded {
		if strings.HasSuffix(p.PkgPath, ".test") { // the main function of tests, which is generated
			continue
		}
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
	}
	slices.Sort(problems) // a package and its variant with tests have the same errors
	return slices.Compact(problems), nil
}

// dropBodies leaves of another module's file what its importers see.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, function := d.(*ast.FuncDecl); function {
			f.Body = nil
		}
	}
}
