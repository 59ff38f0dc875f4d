package packages

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/hashicorp/go-version"

	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Build is what a package is made of.
type Build struct {
	Schema  []byte // the schema document: host.Description with the version of the package
	Docs    string // reference page of the block, Markdown
	Runtime string
	Targets map[string]Target // by OS/ARCHITECTURE
}

// Target is one platform of a Build.
type Target struct {
	Entrypoint string
	Files      map[string]File
	SBOM       []byte // SPDX JSON
}

func checkVersion(text string) error {
	if v, err := version.NewSemver(text); err != nil || v.String() != text {
		return fmt.Errorf("the version %q is no semantic version: expected MAJOR.MINOR.PATCH, such as 1.2.0", text)
	}
	return nil
}

// Index makes the index of the version. The same input gives the same digest.
func (b Build) Index() (v1.ImageIndex, error) {
	d, err := readDescribed(b.Schema)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(d.Version); err != nil {
		return nil, err
	}
	if len(b.Targets) == 0 {
		return nil, errors.New("a package needs a platform")
	}
	images := map[string]v1.Image{}
	for _, platform := range slices.Sorted(maps.Keys(b.Targets)) {
		t := b.Targets[platform]
		if _, ok := t.Files[t.Entrypoint]; !ok {
			return nil, fmt.Errorf("%s: its files lack %q", platform, t.Entrypoint)
		}
		config, err := json.Marshal(Manifest{FormatVersion: FormatVersion, Kind: d.Kind, Name: d.Name, Version: d.Version,
			Protocol: protocol.Version, Runtime: b.Runtime, Entrypoint: t.Entrypoint})
		if err != nil {
			return nil, err
		}
		packed, err := archive(t.Files, zip.Deflate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		images[platform], err = newArtifact(typeTarget, document(config, typeConfig), nil, document(b.Schema, typeSchema),
			document(packed, typeZip), document([]byte(b.Docs), typeDocs), document(t.SBOM, typeSBOM))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
	}
	return newIndex(pluginFormat, images)
}
