package packages

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// artifact is a manifest with an artifactType, which package mutate cannot set.
type artifact struct {
	raw    []byte
	config v1.Layer
	layers []v1.Layer
}

// newArtifact makes a manifest of layers. Its config is a document of the given media type.
func newArtifact(artifactType string, config v1.Layer, subject *v1.Descriptor, layers ...v1.Layer) (v1.Image, error) {
	described, err := partial.Descriptor(config)
	if err != nil {
		return nil, err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifactType,
		Subject: subject, Config: *described}
	for _, l := range layers {
		d, err := partial.Descriptor(l)
		if err != nil {
			return nil, err
		}
		m.Layers = append(m.Layers, *d)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{raw: raw, config: config, layers: layers})
}

func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return a.raw, nil }

func (a *artifact) RawConfigFile() ([]byte, error) {
	r, err := a.config.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return readAll(r, maxManifest)
}

func (a *artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, l := range append([]v1.Layer{a.config}, a.layers...) {
		if d, err := l.Digest(); err == nil && d == h {
			return l, nil
		}
	}
	return nil, &missingBlobError{digest: h.String()}
}

type missingBlobError struct{ digest string }

func (e *missingBlobError) Error() string { return "there is no blob " + e.digest }

func document(data []byte, mediaType types.MediaType) v1.Layer {
	return static.NewLayer(data, mediaType)
}

type baseIndex = v1.ImageIndex

// typedIndex is an index with an artifactType. (The interface has a method ImageIndex, so the field has another name.)
type typedIndex struct {
	baseIndex
	raw []byte
}

// newIndex makes the index of a version from the manifests of its platforms.
func newIndex(f format, targets map[string]v1.Image) (v1.ImageIndex, error) {
	base := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		platform, err := parsePlatform(name)
		if err != nil {
			return nil, err
		}
		base = mutate.AppendManifests(base, mutate.IndexAddendum{Add: targets[name],
			Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, ArtifactType: f.target, Platform: platform}})
	}
	m, err := base.IndexManifest()
	if err != nil {
		return nil, err
	}
	m.ArtifactType = f.index
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &typedIndex{baseIndex: base, raw: raw}, nil
}

func (i *typedIndex) RawManifest() ([]byte, error) { return i.raw, nil }
func (i *typedIndex) Digest() (v1.Hash, error)     { return partial.Digest(i) }
func (i *typedIndex) Size() (int64, error)         { return partial.Size(i) }

func (i *typedIndex) IndexManifest() (*v1.IndexManifest, error) {
	var m v1.IndexManifest
	return &m, json.Unmarshal(i.raw, &m)
}
