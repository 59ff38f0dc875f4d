// Package packages builds, publishes, fetches and locks plugins as OCI artifacts.
//
// A package is an OCI image index for each version, with one manifest for each platform. A recipe names its repository;
// `recipe init` chooses a version, fetches it into the store of this user, and writes the lock file of the recipe. All
// other commands read the lock and the store: they need no network, and run nothing to know a plugin's schema.
package packages

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Media and artifact types of a package; public, see docs/packages.md.
const (
	typeIndex  = "application/vnd.recipe.plugin.v1"               // artifactType of the index
	typeTarget = "application/vnd.recipe.plugin.target.v1"        // artifactType of the manifest of a platform
	typeConfig = "application/vnd.recipe.plugin.manifest.v1+json" // Manifest
	typeSchema = "application/vnd.recipe.plugin.schema.v1+json"   // host.Description
	typeZip    = "archive/zip"                                    // the files
	typeDocs   = "text/markdown"                                  // the reference page of the block
	typeSBOM   = "application/spdx+json"
	refName    = "org.opencontainers.image.ref.name" // in a layout: the version, or REPOSITORY:VERSION

	typeModule       = "application/vnd.recipe.module.v1"        // artifactType of the index of a module
	typeModuleFiles  = "application/vnd.recipe.module.target.v1" // artifactType of its manifest, for any/any
	typeModuleConfig = "application/vnd.recipe.module.manifest.v1+json"
	typeArchive      = "application/vnd.recipe.archive.v1" // artifactType of the manifest of an archive in a layout
	typeBytes        = "application/octet-stream"
)

// format is what distinguishes the packages of plugins and of modules.
type format struct{ index, target, config string }

var (
	pluginFormat = format{typeIndex, typeTarget, typeConfig}
	moduleFormat = format{typeModule, typeModuleFiles, typeModuleConfig}
)

func formatOf(module bool) format {
	if module {
		return moduleFormat
	}
	return pluginFormat
}

// AnyPlatform is the platform of a plugin without compiled parts.
const AnyPlatform = "any/any"

// FormatVersion is the version of the format of packages.
const FormatVersion = 1

// Limits of what is read from a package that somebody else made.
const (
	maxManifest  = 4 << 20  // bytes of an index, a manifest or its configuration
	maxDocument  = 16 << 20 // bytes of the schema, the docs or the SBOM
	maxArchive   = 2 << 30  // bytes of an archive
	maxExtracted = 4 << 30  // bytes of the files in it
	maxFiles     = 20_000   // files in it
	maxModule    = 64 << 20 // bytes of a module's archive, and of the files in it: they are compared with each load
	maxPlatforms = 64       // manifests of a version
	maxTags      = 100_000  // of a repository
	maxTag       = 128      // bytes of one: what the specification of OCI allows
)

// The values of Manifest.Runtime.
const (
	Program = "program" // Entrypoint is an executable file
	Python  = "python"  // Entrypoint is a Python file, see package script
)

// Manifest is the configuration of the manifest of a platform.
type Manifest struct {
	FormatVersion int    `json:"format_version"`
	Kind          string `json:"kind"`
	Name          string `json:"name"`
	Version       string `json:"version"`
	Protocol      int    `json:"protocol"` // version of the plugin protocol
	Runtime       string `json:"runtime"`
	Entrypoint    string `json:"entrypoint"` // path in the archive
}

func parseManifest(data []byte) (m Manifest, err error) {
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("read its configuration: %w", err)
	}
	switch {
	case m.FormatVersion != FormatVersion:
		return m, fmt.Errorf("its format version is %d, this program reads %d: use another version of recipe",
			m.FormatVersion, FormatVersion)
	case m.Runtime != Program && m.Runtime != Python:
		return m, fmt.Errorf("its runtime is %q, expected %s or %s", m.Runtime, Program, Python)
	}
	return m, checkName(m.Entrypoint)
}

// ThisPlatform is the platform of this program, as Go names it.
func ThisPlatform() string { return runtime.GOOS + "/" + runtime.GOARCH }

func platformName(p *v1.Platform) string {
	if p == nil {
		return AnyPlatform
	}
	return p.OS + "/" + p.Architecture
}

// CheckPlatform reports what is no OS/ARCHITECTURE.
func CheckPlatform(s string) error {
	_, err := parsePlatform(s)
	return err
}

func parsePlatform(s string) (*v1.Platform, error) {
	os, arch, ok := strings.Cut(s, "/")
	if !ok || os == "" || arch == "" || strings.Contains(arch, "/") {
		return nil, fmt.Errorf("platform %q: expected OS/ARCHITECTURE as Go names them, such as linux/amd64", s)
	}
	return &v1.Platform{OS: os, Architecture: arch}, nil
}

// onPlatform returns the entry for a platform: the one of that name, else any/any.
func onPlatform[T any](entries map[string]T, platform string) (entry T, ok bool) {
	if entry, ok = entries[platform]; !ok {
		entry, ok = entries[AnyPlatform]
	}
	return entry, ok
}
