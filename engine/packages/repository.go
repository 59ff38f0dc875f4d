package packages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/recipe-rl/recipe/sdk"
)

// repository is where the versions of one package are: in a registry or in a layout.
type repository interface {
	// tags lists the versions, and whatever else was tagged there.
	tags(ctx context.Context) ([]string, error)
	// index returns the manifest that a version names now; *notFoundError when there is none.
	index(ctx context.Context, version string) ([]byte, error)
	// manifest returns the manifest or index of a digest.
	manifest(ctx context.Context, digest v1.Hash) ([]byte, error)
	// blob opens a blob. The reader does not check it.
	blob(ctx context.Context, digest v1.Hash) (io.ReadCloser, error)
	// referrers returns the manifests that have this one as their subject.
	referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error)
	// image returns the index of a digest with all that it names, to copy it.
	image(ctx context.Context, digest v1.Hash) (v1.ImageIndex, error)
	// String says where it is, for messages.
	String() string
}

type notFoundError struct {
	what, where string
	has         string // what is there instead; empty: not known
	remedy      string
}

func (e *notFoundError) Error() string {
	text := fmt.Sprintf("%s has no %s", e.where, e.what)
	if e.has != "" {
		text += "; it has " + e.has
	}
	return text
}

// As lets a command print the remedy.
func (e *notFoundError) As(target any) bool {
	described, ok := target.(**sdk.Error)
	if ok = ok && e.remedy != ""; ok {
		*described = &sdk.Error{Summary: e.Error(), Remedy: e.remedy}
	}
	return ok
}

// tagOf is the tag of a version: a tag cannot contain "+".
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

func versionOf(tag string) string { return strings.ReplaceAll(tag, "_", "+") }

// readManifest gets a manifest by its digest, and checks that it has it.
func readManifest(ctx context.Context, r repository, digest v1.Hash) ([]byte, error) {
	data, err := r.manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	return data, checkDigest(data, digest)
}

func checkDigest(data []byte, want v1.Hash) error {
	if have := digestOf(data); have != want {
		return &DigestError{Want: want.String(), Have: have.String()}
	}
	return nil
}

// DigestError reports that data is not what its digest promised.
type DigestError struct{ Want, Have string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("digest mismatch: expected %s, got %s", e.Want, e.Have)
}

func digestOf(data []byte) v1.Hash {
	sum := sha256.Sum256(data)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

func digestSum(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// release is the index of one version of a package.
type release struct {
	digest v1.Hash
	index  v1.IndexManifest
	raw    []byte
	format format
}

// parseIndex reads the index of a version.
func parseIndex(raw []byte, f format) (v release, err error) {
	if len(raw) > maxManifest {
		return v, fmt.Errorf("its index has more than %d bytes", maxManifest)
	}
	v.raw, v.digest, v.format = raw, digestOf(raw), f
	if err := json.Unmarshal(raw, &v.index); err != nil {
		return v, fmt.Errorf("read its index: %w", err)
	}
	if v.index.ArtifactType != f.index {
		return v, fmt.Errorf("it is no such package: its artifactType is %q, expected %q", v.index.ArtifactType, f.index)
	}
	if len(v.index.Manifests) > maxPlatforms {
		return v, fmt.Errorf("its index lists %d manifests, at most %d are allowed", len(v.index.Manifests), maxPlatforms)
	}
	return v, nil
}

// targets are the manifests of the platforms. Entries of other types are for later versions of this program.
func (v release) targets() (map[string]v1.Descriptor, error) {
	out := map[string]v1.Descriptor{}
	for _, d := range v.index.Manifests {
		if d.ArtifactType != v.format.target {
			continue
		}
		p := platformName(d.Platform)
		if _, twice := out[p]; twice {
			return nil, fmt.Errorf("its index lists %s twice", p)
		}
		if d.Digest.Algorithm != "sha256" {
			return nil, fmt.Errorf("its index uses the digest %s; expected sha256", d.Digest)
		}
		out[p] = d
	}
	if len(out) == 0 {
		return nil, errors.New("its index lists no platform")
	}
	return out, nil
}

// target is the manifest of one platform.
type target struct {
	manifest              v1.Manifest
	config, schema, files v1.Descriptor
	documents             []v1.Descriptor // docs, SBOM; at most one of each
}

func parseTarget(raw []byte, f format) (t target, err error) {
	if err := json.Unmarshal(raw, &t.manifest); err != nil {
		return t, fmt.Errorf("read its manifest: %w", err)
	}
	t.config = t.manifest.Config
	if t.manifest.ArtifactType != f.target || string(t.config.MediaType) != f.config {
		return t, fmt.Errorf("its manifest has artifactType %q with %q, expected %q with %q", t.manifest.ArtifactType,
			t.config.MediaType, f.target, f.config)
	}
	if t.config.Size < 0 || t.config.Size > maxManifest {
		return t, fmt.Errorf("its configuration has %d bytes, at most %d are allowed", t.config.Size, maxManifest)
	}
	type layer struct {
		mediaType string
		limit     int64
		to        *v1.Descriptor
	}
	layers := []layer{{typeSchema, maxDocument, &t.schema}, {typeZip, maxArchive, &t.files}}
	if f == moduleFormat {
		layers = []layer{{typeZip, maxModule, &t.files}}
	}
	for _, one := range layers {
		found := slices.DeleteFunc(slices.Clone(t.manifest.Layers),
			func(d v1.Descriptor) bool { return string(d.MediaType) != one.mediaType })
		if len(found) != 1 {
			return t, fmt.Errorf("its manifest has %d layers of type %s, expected one", len(found), one.mediaType)
		}
		*one.to = found[0]
		if found[0].Size < 0 || found[0].Size > one.limit || found[0].Digest.Algorithm != "sha256" {
			return t, fmt.Errorf("its layer %s has %d bytes, at most %d and a sha256 digest are allowed", found[0].Digest,
				found[0].Size, one.limit)
		}
	}
	for _, mediaType := range []types.MediaType{typeDocs, typeSBOM} {
		i := slices.IndexFunc(t.manifest.Layers, func(d v1.Descriptor) bool { return d.MediaType == mediaType })
		if i >= 0 && t.manifest.Layers[i].Size >= 0 && t.manifest.Layers[i].Size <= maxDocument {
			t.documents = append(t.documents, t.manifest.Layers[i])
		}
	}
	return t, nil
}
