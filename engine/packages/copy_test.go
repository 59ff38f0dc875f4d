package packages

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/recipe-rl/recipe/schema/parse"
)

// TestCopiesHaveLimits: the index of a package may list what recipe init does not look at, and a copy takes all of it.
func TestCopiesHaveLimits(t *testing.T) {
	t.Parallel()
	layer := func(size int64) v1.Descriptor {
		return v1.Descriptor{MediaType: typeDocs, Size: size, Digest: digestOf(nil)}
	}
	elsewhere := layer(0)
	elsewhere.URLs = []string{"http://192.0.2.1/"}
	for name, c := range map[string]struct {
		manifest  v1.Manifest
		mediaType types.MediaType
		want      string
	}{
		"a huge configuration": {v1.Manifest{Config: layer(1 << 40)}, types.OCIManifestSchema1, "at most 4194304 are copied"},
		"a huge layer": {v1.Manifest{Config: layer(0), Layers: []v1.Descriptor{layer(1 << 34), layer(1)}},
			types.OCIManifestSchema1, "of at most 17179869184 bytes together"},
		"a layer of no size": {v1.Manifest{Config: layer(-1)}, types.OCIManifestSchema1, "of -1 bytes"},
		"a layer elsewhere": {v1.Manifest{Config: layer(0), Layers: []v1.Descriptor{elsewhere}}, types.OCIManifestSchema1,
			"blobs of the same repository"},
		"an index": {v1.Manifest{}, types.OCIImageIndex, "expected manifests only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publish("1.0.0")
			c.manifest.SchemaVersion, c.manifest.MediaType = 2, c.mediaType
			raw, err := json.Marshal(c.manifest)
			if err != nil {
				t.Fatal(err)
			}
			index := build(t, "1.0.0", nil)
			m, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			m.Manifests = append(m.Manifests,
				v1.Descriptor{MediaType: c.mediaType, Size: int64(len(raw)), Digest: digestOf(raw)})
			listing, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			served := map[string][]byte{"/manifests/1.0.0": listing, "/manifests/" + digestOf(listing).String(): listing,
				"/manifests/" + digestOf(raw).String(): raw}
			b.fault(func(w http.ResponseWriter, r *http.Request) bool {
				for path, content := range served {
					if strings.HasSuffix(r.URL.Path, path) {
						kind := types.OCIImageIndex
						if &content[0] == &raw[0] {
							kind = c.mediaType
						}
						w.Header().Set("Content-Type", string(kind))
						_, _ = w.Write(content)
						return true
					}
				}
				if strings.HasSuffix(r.URL.Path, "/blobs/"+digestOf(nil).String()) {
					t.Error("a blob of it was fetched")
				}
				return false
			})
			if _, err := b.init("", Options{}); err != nil {
				t.Fatal(text(err))
			}
			l, err := ReadLock(parse.LockFile(b.recipe))
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{b.resolver.Vendor(t.Context(), l, t.TempDir()),
				b.resolver.Pull(t.Context(), b.source, "1.0.0", "", t.TempDir())} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %s, want %q", text(err), c.want)
				}
			}
		})
	}
}
