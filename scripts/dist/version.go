package main

import (
	"fmt"
	"regexp"
	"strings"
)

// version is a version of git describe: a tag, and for later commits their number and the newest one.
type version struct {
	tag    string // without v, for example 1.2.0 or 1.2.0-rc.1
	ahead  string // commits after the tag; empty: none
	commit string
}

var described = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.?\d+)?)(?:-(\d+)-g([0-9a-f]+))?(?:-dirty)?$`)

// parseVersion reads a version. A repository without a tag, whose description is a commit, has version 0.0.0.
func parseVersion(text string) (version, error) {
	if m := described.FindStringSubmatch(text); m != nil {
		return version{tag: m[1], ahead: m[2], commit: m[3]}, nil
	}
	if commit := strings.TrimSuffix(text, "-dirty"); regexp.MustCompile(`^[0-9a-f]{7,40}$`).MatchString(commit) {
		return version{tag: "0.0.0", ahead: "1", commit: commit}, nil
	}
	return version{}, fmt.Errorf("version %q; expected one of git describe --tags --always, for example v1.2.0 or "+
		"v1.2.0-3-gabc1234", text)
}

// plain is the version as semantic versioning has it.
func (v version) plain() string {
	if v.ahead == "" {
		return v.tag
	}
	return fmt.Sprintf("%s+%s.g%s", v.tag, v.ahead, v.commit)
}

// python is the version as PEP 440 has it: https://packaging.python.org/en/latest/specifications/version-specifiers/
func (v version) python() string {
	number, before, pre := strings.Cut(v.tag, "-")
	if pre {
		kind := strings.TrimRight(before, ".0123456789")
		number += map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[kind] + strings.TrimLeft(before[len(kind):], ".")
	}
	if v.ahead == "" {
		return number
	}
	return fmt.Sprintf("%s.post%s+g%s", number, v.ahead, v.commit)
}
