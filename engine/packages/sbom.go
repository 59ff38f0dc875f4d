package packages

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// spdx is the part of SPDX 2.3 that a package lists: what it contains, and where that comes from.
type spdx struct {
	Version   string         `json:"spdxVersion"`
	License   string         `json:"dataLicense"`
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Namespace string         `json:"documentNamespace"`
	Creation  spdxCreation   `json:"creationInfo"`
	Packages  []spdxPackage  `json:"packages"`
	Relations []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID       string         `json:"SPDXID"`
	Name     string         `json:"name"`
	Version  string         `json:"versionInfo,omitempty"`
	Download string         `json:"downloadLocation"`
	Analyzed bool           `json:"filesAnalyzed"`
	Sums     []spdxChecksum `json:"checksums,omitempty"`
	External []spdxExternal `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// component is one package inside a plugin.
type component struct {
	name, version, purl string
	sha256              string // of its source archive, hexadecimal; empty: not known
}

// sbom lists the components of a plugin. It has no time of its own, since the same input gives the same package.
func sbom(name, version, platform string, components []component) ([]byte, error) {
	const root = "SPDXRef-plugin"
	key := digestOf(fmt.Appendf(nil, "%s %s %s %v", name, version, platform, components)).Hex
	d := spdx{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + version,
		Namespace: "urn:sha256:" + key,
		Creation:  spdxCreation{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: recipe-plugin-build"}},
		Packages:  []spdxPackage{{ID: root, Name: name, Version: version, Download: "NOASSERTION"}},
		Relations: []spdxRelation{{From: "SPDXRef-DOCUMENT", Type: "DESCRIBES", To: root}}}
	for i, c := range components {
		p := spdxPackage{ID: fmt.Sprintf("SPDXRef-%d", i+1), Name: c.name, Version: c.version, Download: "NOASSERTION"}
		if c.sha256 != "" {
			p.Sums = []spdxChecksum{{Algorithm: "SHA256", Value: c.sha256}}
		}
		if c.purl != "" {
			p.External = []spdxExternal{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: c.purl}}
		}
		d.Packages = append(d.Packages, p)
		d.Relations = append(d.Relations, spdxRelation{From: root, Type: "CONTAINS", To: p.ID})
	}
	return json.MarshalIndent(d, "", " ")
}

// ProgramSBOM lists the modules that are linked into a Go program, and the Python packages that it requires, as SPDX
// JSON, and says for which platform it was built.
func ProgramSBOM(name, version string, program []byte, requirements []string) (document []byte, platform string,
	err error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, "", fmt.Errorf("it is no Go program with build information: %w", err)
	}
	setting := func(key string) string {
		i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 {
			return ""
		}
		return info.Settings[i].Value
	}
	platform = setting("GOOS") + "/" + setting("GOARCH")
	list := []component{{name: "stdlib", version: info.GoVersion, purl: "pkg:golang/stdlib@" + info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{name: m.Path, version: m.Version}
		if m.Version != "" {
			c.purl = "pkg:golang/" + m.Path + "@" + m.Version
		}
		list = append(list, c)
	}
	for _, requirement := range requirements {
		if m := pinned.FindStringSubmatch(requirement); m != nil {
			list = append(list, component{name: m[1], version: m[2], purl: "pkg:pypi/" + m[1] + "@" + m[2]})
		}
	}
	document, err = sbom(name, version, platform, list)
	return document, platform, err
}

var (
	pinned        = regexp.MustCompile(`^([A-Za-z0-9._-]+)==([^ ;]+)`)
	lockedPackage = regexp.MustCompile(`(?ms)^\[\[package\]\]\n(.*?)(?:\n\n|\z)`)
	lockedField   = regexp.MustCompile(`(?m)^(name|version) = "([^"]*)"$`)
	lockedSource  = regexp.MustCompile(`(?m)^sdist = \{.*hash = "sha256:([0-9a-f]{64})"`)
)

// PythonSBOM lists the packages of a uv lock file, as SPDX JSON.
func PythonSBOM(name, version string, lock []byte) ([]byte, error) {
	var list []component
	text := strings.ReplaceAll(string(lock), "\r\n", "\n")
	for _, m := range lockedPackage.FindAllStringSubmatch(text, -1) {
		var c component
		for _, f := range lockedField.FindAllStringSubmatch(m[1], -1) {
			if f[1] == "name" && c.name == "" {
				c.name = f[2]
			} else if f[1] == "version" && c.version == "" {
				c.version = f[2]
			}
		}
		if h := lockedSource.FindStringSubmatch(m[1]); h != nil {
			c.sha256 = h[1]
		}
		if c.version != "" {
			c.purl = "pkg:pypi/" + c.name + "@" + c.version
		}
		list = append(list, c)
	}
	return sbom(name, version, AnyPlatform, list)
}
