// Command dist makes what users install from built programs: archives, Python wheels, deb and rpm packages, an OCI
// image, a Homebrew formula, an SBOM, checksums, and a script that installs from them.
//
//	dist -version 1.2.0 -out dist linux/amd64=bin/recipe …
//
// Equal programs give equal files: nothing in them depends on the time or the machine.
package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	name        = "recipe"
	packageName = "recipe-rl" // on PyPI, where "recipe" is another project
	description = "Declarative workflow engine for RL post-training of language models"
	homepage    = "https://github.com/recipe-rl/recipe"
	license     = "Apache-2.0"
)

// epoch is the time of all files.
var epoch = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

// program is a built program and its platform.
type program struct {
	os, arch string
	content  []byte
	path     string
}

func (p program) platform() string { return p.os + "_" + p.arch }

// artifact is a file that is made.
type artifact struct {
	name    string
	content []byte
}

func main() {
	version := flag.String("version", "", "version as git describe prints it, for example v1.2.0-3-gabc1234")
	out := flag.String("out", "dist", "folder that the files are written to")
	nfpm := flag.String("nfpm", "", "command that runs nfpm; empty: no deb and rpm packages")
	flag.Parse()
	if err := run(*version, *out, strings.Fields(*nfpm), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(version, out string, nfpm, args []string) error {
	v, err := parseVersion(version)
	if err != nil {
		return err
	}
	programs, err := readPrograms(args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	files, err := artifacts(v, programs)
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(out, f.name), f.content, 0o644); err != nil {
			return err
		}
		sums[f.name] = fmt.Sprintf("%x", sha256.Sum256(f.content))
	}
	if len(nfpm) > 0 {
		packages, err := systemPackages(v, programs, out, nfpm)
		if err != nil {
			return err
		}
		maps.Copy(sums, packages)
	}
	var lines strings.Builder
	for _, file := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&lines, "%s  %s\n", sums[file], file)
	}
	if err := os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(lines.String()), 0o644); err != nil {
		return err
	}
	for file, content := range map[string]string{"recipe.rb": formula(v, programs, sums), "install.sh": installScript} {
		if err := os.WriteFile(filepath.Join(out, file), []byte(content), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func readPrograms(args []string) ([]program, error) {
	if len(args) == 0 {
		return nil, errors.New("no programs; expected OS/ARCH=FILE, for example linux/amd64=bin/recipe")
	}
	var all []program
	for _, arg := range args {
		platform, path, ok := strings.Cut(arg, "=")
		system, arch, both := strings.Cut(platform, "/")
		if !ok || !both {
			return nil, fmt.Errorf("argument %q; expected OS/ARCH=FILE, for example linux/amd64=bin/recipe", arg)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, program{os: system, arch: arch, content: content, path: path})
	}
	slices.SortFunc(all, func(a, b program) int { return cmp.Compare(a.platform(), b.platform()) })
	return all, nil
}

// artifacts are all files but system packages and those that have the checksums of others.
func artifacts(v version, programs []program) ([]artifact, error) {
	var all []artifact
	for _, p := range programs {
		a, err := archive(v, p)
		if err != nil {
			return nil, err
		}
		w, err := wheel(v, p)
		if err != nil {
			return nil, err
		}
		b, err := bill(v, p)
		if err != nil {
			return nil, err
		}
		all = append(all, a, w, b)
	}
	image, err := imageArchive(v, programs)
	if err != nil {
		return nil, err
	}
	if image.content != nil {
		all = append(all, image)
	}
	return all, nil
}

// systemPackages makes deb and rpm packages of the programs for Linux by nfpm. It returns their checksums.
func systemPackages(v version, programs []program, out string, nfpm []string) (map[string]string, error) {
	sums := map[string]string{}
	for _, p := range programs {
		if p.os != "linux" {
			continue
		}
		config := filepath.Join(out, "nfpm.yaml")
		if err := os.WriteFile(config, []byte(nfpmConfig(v, p)), 0o644); err != nil {
			return nil, err
		}
		for _, format := range []string{"deb", "rpm"} {
			file := fmt.Sprintf("%s_%s_%s.%s", name, v.plain(), p.platform(), format)
			args := append(slices.Clone(nfpm[1:]), "package", "--config", config, "--packager", format, "--target",
				filepath.Join(out, file))
			cmd := exec.Command(nfpm[0], args...)
			cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix()))
			if text, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("make %s by nfpm: %w\n%s", file, err, text)
			}
			content, err := os.ReadFile(filepath.Join(out, file))
			if err != nil {
				return nil, err
			}
			sums[file] = fmt.Sprintf("%x", sha256.Sum256(content))
		}
		if err := os.Remove(config); err != nil {
			return nil, err
		}
	}
	return sums, nil
}
