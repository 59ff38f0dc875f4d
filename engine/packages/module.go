package packages

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// moduleManifest is the configuration of the manifest of a module.
type moduleManifest struct {
	FormatVersion int    `json:"format_version"`
	Version       string `json:"version"`
}

// ModuleIndex makes the index of a version of a module: the files of its folder, and its README.md as its page. The
// same input gives the same digest.
func ModuleIndex(version string, files map[string]File) (v1.ImageIndex, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	config, err := json.Marshal(moduleManifest{FormatVersion: FormatVersion, Version: version})
	if err != nil {
		return nil, err
	}
	packed, err := archive(files, zip.Deflate)
	if err != nil {
		return nil, err
	}
	if len(packed) > maxModule {
		return nil, fmt.Errorf("its files have %d bytes, at most %d are allowed", len(packed), maxModule)
	}
	layers := []v1.Layer{document(packed, typeZip)}
	if readme, ok := files["README.md"]; ok {
		layers = append(layers, document(readme.Content, typeDocs))
	}
	img, err := newArtifact(typeModuleFiles, document(config, typeModuleConfig), nil, layers...)
	if err != nil {
		return nil, err
	}
	return newIndex(moduleFormat, map[string]v1.Image{AnyPlatform: img})
}

// module fetches the files of a module from the manifest that an index names, and returns the digest of their archive.
func (r Resolver) module(ctx context.Context, from repository, d v1.Descriptor,
	chosen string) (files string, err error) {
	t, err := r.target(ctx, from, d, moduleFormat)
	if err != nil {
		return "", err
	}
	for _, d := range append([]v1.Descriptor{t.config, t.files}, t.documents...) {
		if err := r.blob(ctx, from, d); err != nil {
			return "", err
		}
	}
	config, err := r.Store.document(t.config.Digest, maxManifest)
	if err != nil {
		return "", err
	}
	var m moduleManifest
	if err := json.Unmarshal(config, &m); err != nil {
		return "", fmt.Errorf("read its configuration: %w", err)
	}
	switch {
	case m.FormatVersion != FormatVersion:
		return "", fmt.Errorf("its format version is %d, this program reads %d: use another version of recipe",
			m.FormatVersion, FormatVersion)
	case m.Version != chosen:
		return "", fmt.Errorf("its manifest has version %s", m.Version)
	}
	return t.files.Digest.String(), r.Store.unpack(ctx, t.files.Digest, moduleLimits)
}

// archivedModule locks the module in an archive of a folder. Its files are stored as those of other modules are.
func (r Resolver) archivedModule(ctx context.Context, q parse.Requirement, checksum v1.Hash) (Entry, error) {
	content, err := os.Open(r.Store.blobFile(checksum))
	if err != nil {
		return Entry{}, err
	}
	defer func() { _ = content.Close() }()
	packed, err := repacked(content)
	if err != nil {
		return Entry{}, err
	}
	digest := digestOf(packed)
	if err := r.Store.put(digest, int64(len(packed)), bytes.NewReader(packed)); err != nil {
		return Entry{}, err
	}
	return Entry{Source: q.Source, Checksum: q.Checksum, Files: digest.String()},
		r.Store.unpack(ctx, digest, moduleLimits)
}

// Modules are the folders of modules, by their paths. It gives the language these modules, and no plugin.
type Modules map[string]string

var (
	_ schema.Plugins      = Modules{}
	_ schema.ModuleFinder = Modules{}
)

// Lookup implements schema.Plugins.
func (Modules) Lookup(kind.Kind, string) (*schema.PluginSchema, error) { return nil, nil }

// Names implements schema.Plugins.
func (Modules) Names(kind.Kind) []string { return nil }

// Module implements schema.ModuleFinder.
func (m Modules) Module(_ string, q parse.Requirement) (string, error) {
	folder, ok := m[q.Name]
	if !ok {
		return "", fmt.Errorf("%s has not been fetched", q.Source)
	}
	return folder, nil
}

// Requires lists what a recipe requires, as far as it can be read with the modules found so far: a module may require
// more.
type Requires func(Modules) []parse.Requirement

// each calls do once for every package that a recipe requires. do returns the folder of a module.
func (r Requires) each(do func(parse.Requirement) (folder string, err error)) error {
	found, done := Modules{}, map[string]bool{}
	for more := true; more; {
		more = false
		for _, q := range r(found) {
			if done[q.String()] || !IsPackage(q.Source) {
				continue
			}
			done[q.String()] = true
			folder, err := do(q)
			if err != nil {
				return err
			}
			if q.Module {
				found[q.Name], more = folder, true
			}
		}
	}
	return nil
}
