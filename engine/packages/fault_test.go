package packages

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/schema/parse"
)

func isBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
}

// TestFaultsOfARegistry: each is an error that names it, and leaves no lock.
func TestFaultsOfARegistry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request) bool
		want  string
	}{
		"the connection is cut": {func(w http.ResponseWriter, r *http.Request) bool {
			if !isBlob(r) {
				return false
			}
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
		"another blob": {func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				_, _ = w.Write([]byte("something else"))
			}
			return isBlob(r)
		}, "bytes"},
		"another manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/sha256:") {
				_, _ = w.Write([]byte(`{"schemaVersion":2}`))
				return true
			}
			return false
		}, "digest"},
		"an endless blob": {func(w http.ResponseWriter, r *http.Request) bool {
			for isBlob(r) && r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					break
				}
			}
			return isBlob(r)
		}, "or more"},
		"no access": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, "docker login"},
		"a broken server": {func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, "answered 500"},
		"no such repository": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusNotFound)
			return true
		}, "has no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publish("1.0.0")
			b.fault(c.fault)
			_, err := b.init("", Options{})
			b.refused(err, c.want, "")
			b.fault(nil)
			if _, err := b.init("", Options{}); err != nil {
				t.Errorf("afterwards: %v", text(err))
			}
		})
	}
}

// TestWhatToDoWithoutARegistry: the cause is said once, and who publishes has fetched nothing.
func TestWhatToDoWithoutARegistry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	if err := WriteLayout(t.Context(), dir, "1.0.0", build(t, "1.0.0", nil)); err != nil {
		t.Fatal(err)
	}
	key, _ := keyPair(t)
	b.server.Close()
	_, fetch := b.init("", Options{})
	_, _, push := b.resolver.Registries.Push(t.Context(), dir, "", b.source)
	_, sign := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", key)
	for what, err := range map[string]error{"fetched": fetch, "not sent again": push, "is not sent again": sign} {
		b.refused(err, what, "")
		if said := text(err); strings.Count(said, `Get "http:`) != 1 ||
			strings.Contains(said, "--from") != (what == "fetched") {
			t.Errorf("the cause once, and --from for who fetches; got %s", said)
		}
	}
}

// TestASlowDripIsGivenUp: a byte now and then is no transfer.
func TestASlowDripIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	b.resolver.Registries.Stall = 3 * time.Second // the other requests end long before, on a busy machine too
	b.fault(func(w http.ResponseWriter, r *http.Request) bool {
		for isBlob(r) && r.Context().Err() == nil {
			if _, err := w.Write([]byte("x")); err != nil {
				break
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(150 * time.Millisecond) // the pace of the drip
		}
		return isBlob(r)
	})
	_, err := b.init("", Options{})
	b.refused(err, "sent less than", "")
}

// The author of a recipe names its registry, which may list versions without end: in one answer, or page after page.
func TestListsWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"pages": `</v2/acme/words/tags/list?n=1000&last=x>; rel="next"`, "one": "",
		"small": `</v2/acme/words/tags/list?n=1&last=x>; rel="next"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publish("1.0.0")
			b.fault(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/tags/list") {
					return false
				}
				size := 1 << 20
				if next == "" {
					size = 2 * maxListed
				} else {
					w.Header().Set("Link", next)
				}
				if name == "small" {
					size = 0
				}
				_, _ = io.WriteString(w, `{"name": "acme/words", "tags": ["`)
				for part := strings.Repeat("x", 1<<20); size > 0 && r.Context().Err() == nil; size -= len(part) {
					_, _ = io.WriteString(w, part)
				}
				_, _ = io.WriteString(w, `"]}`)
				return true
			})
			if _, err := b.init("", Options{}); err == nil || !strings.Contains(text(err), "where it lists what it has") {
				t.Errorf("got %s", text(err))
			}
		})
	}
}

// Before it sends a blob a registry is asked how to log in; a redirect makes no answer without end of that one.
func TestALoginWithoutEndIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	var listed, sent atomic.Bool
	b.fault(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/sha256:"):
			listed.Store(true)
		case r.URL.Path == "/v2/" && listed.Load():
			http.Redirect(w, r, "/v2/endless", http.StatusTemporaryRedirect)
			return true
		case r.URL.Path == "/v2/endless":
			sent.Store(true)
			for part := strings.Repeat("x", 1<<20); r.Context().Err() == nil; {
				_, _ = io.WriteString(w, part)
			}
			return true
		}
		return false
	})
	if _, err := b.init("", Options{}); err != nil || !sent.Load() {
		t.Errorf("got %s; the endless answer was asked for: %v", text(err), sent.Load())
	}
}

// TestCredentialsDoNotFollowARedirect to another host.
func TestCredentialsDoNotFollowARedirect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	var asked, leaked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		resp, err := http.Get(b.server.URL + r.URL.Path + "?direct") //nolint:gosec,noctx // of the test
		if err != nil {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		_, _ = w.Write(body.Bytes())
	}))
	defer elsewhere.Close()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:secret"))
	b.resolver.Registries.Keychain = oneAccount{}
	b.fault(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.RawQuery == "direct":
			return false
		case r.Header.Get("Authorization") != want:
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case isBlob(r):
			http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)+r.URL.Path,
				http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(text(err))
	}
	if asked.Load() == 0 || leaked.Load() > 0 {
		t.Errorf("%d requests were redirected, %d with credentials", asked.Load(), leaked.Load())
	}
}

// answers is a network of registries, in this process.
type answers func(req *http.Request, w http.ResponseWriter)

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a(req, w)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// TestCredentialsAreNotSentInTheClear, wherever a registry that is asked by https sends its clients: by a redirect, or
// for its tokens.
func TestCredentialsAreNotSentInTheClear(t *testing.T) {
	t.Parallel()
	const host, realm = "registry.example.com", "http://auth.example.com/token"
	for want, answer := range map[string]answers{
		"to let it redirect to https": func(req *http.Request, w http.ResponseWriter) {
			if req.URL.Scheme == "https" {
				http.Redirect(w, req, "http://"+host+req.URL.Path, http.StatusMovedPermanently)
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"invalid realm": func(_ *http.Request, w http.ResponseWriter) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			leaked := false
			g := Registries{Keychain: oneAccount{}, Retry: time.Millisecond, Transport: answers(
				func(req *http.Request, w http.ResponseWriter) {
					leaked = leaked || req.URL.Scheme == "http" && req.Header.Get("Authorization") != ""
					answer(req, w)
				})}
			source, err := ParseSource("oci://" + host + "/acme/words")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Resolver{Store: NewStore(t.TempDir()), Registries: g}.Versions(t.Context(), source)
			if leaked || err == nil || !strings.Contains(text(err), want) {
				t.Errorf("leaked: %v, %v", leaked, text(err))
			}
		})
	}
}

type oneAccount struct{}

func (oneAccount) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "user", Password: "secret"}, nil
}

// hostile is an archive with entries that no tool of ours writes.
func hostile(t testing.TB, entries ...zip.FileHeader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range entries {
		w, err := z.CreateHeader(&entries[i])
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(entries[i].Name, "/") {
			continue
		}
		if _, err := w.Write([]byte("/etc/passwd")); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func entry(name string, mode fs.FileMode) zip.FileHeader {
	h := zip.FileHeader{Name: name, Method: zip.Deflate}
	h.SetMode(mode)
	return h
}

func folder(name string) zip.FileHeader { return entry(name, 0o755|fs.ModeDir) }

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{
		"above":              hostile(t, entry("../x", 0o644)),
		"above, inside":      hostile(t, entry("a/../../x", 0o644)),
		"absolute":           hostile(t, entry("/tmp/x", 0o644)),
		"a backslash":        hostile(t, entry(`..\x`, 0o644)),
		"a drive":            hostile(t, entry("C:x", 0o644)),
		"a link":             hostile(t, entry("x", 0o777|fs.ModeSymlink)),
		"through a link":     hostile(t, entry("x", 0o777|fs.ModeSymlink), entry("x/y", 0o644)),
		"a device":           hostile(t, entry("x", 0o644|fs.ModeDevice)),
		"a pipe":             hostile(t, entry("x", 0o644|fs.ModeNamedPipe)),
		"a socket":           hostile(t, entry("x", 0o644|fs.ModeSocket)),
		"twice":              hostile(t, entry("x", 0o644), entry("x", 0o755)),
		"a file as folder":   hostile(t, entry("x", 0o644), entry("x/y", 0o644)),
		"too large":          hostile(t, entry("x", 0o644), entry("y", 0o644), entry("z", 0o644)),
		"too many":           hostile(t, entry("a", 0o644), folder("b/"), folder("c/"), folder("d/"), folder("e/")),
		"a line break":       hostile(t, entry("x\ny", 0o644)),
		"not its short form": hostile(t, entry("a//x", 0o644)),
		"no archive":         []byte("PK nothing"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := extract(bytes.NewReader(archive), int64(len(archive)), dir, limits{bytes: 30, files: 4}); err == nil {
				t.Error("it was unpacked")
			}
			if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
				t.Errorf("outside of the folder: %v, %v", entries, err)
			}
		})
	}
}

func TestModesAreNormalized(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	archive := hostile(t, entry("a", 0o777|fs.ModeSetuid), entry("b", 0o666), entry("c", 0o007))
	if err := extract(bytes.NewReader(archive), int64(len(archive)), dir, limits{bytes: 1000, files: 9}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"a": 0o555, "b": 0o444, "c": 0o444} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// FuzzExtract: whatever an archive has, nothing appears outside of the folder, only plain files are in it, and they
// are
// those of the archive.
func FuzzExtract(f *testing.F) {
	good, err := archive(program("1.0.0"), zip.Deflate)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(hostile(f, entry("../x", 0o644), entry("l", 0o777|fs.ModeSymlink)))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		limit := limits{bytes: 1 << 20, files: 100}
		err := extract(bytes.NewReader(data), int64(len(data)), dir, limit)
		if entries, rerr := os.ReadDir(outer); rerr != nil || len(entries) != 1 {
			t.Fatalf("outside of the folder: %v, %v", entries, rerr)
		}
		total := int64(0)
		if werr := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil && !info.Mode().IsRegular() {
				t.Errorf("%s is %v", path, info.Mode())
			}
			total += info.Size()
			return err
		}); werr != nil {
			t.Fatal(werr)
		}
		if total > limit.bytes+1 {
			t.Errorf("%d bytes were written", total)
		}
		if err == nil {
			if err := compare(bytes.NewReader(data), int64(len(data)), dir); err != nil {
				t.Errorf("what was unpacked differs: %v", err)
			}
		}
	})
}

// FuzzLock: no lock makes the reader fail, and what it has read it writes so that it is read as the same.
func FuzzLock(f *testing.F) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	f.Add((Lock{Plugins: map[string]Entry{"words": {Source: "oci://registry.example.com/acme/words", Version: "1.0.0",
		Index: digest, Schema: digest, Platforms: map[string]Platform{"linux/amd64": {Manifest: digest, Files: digest}}}},
		Modules: map[string]Entry{"eval.inner": {Source: "https://example.com/eval.zip", Checksum: digest, Files: digest}},
	}).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseLock("x.lock.hcl", data)
		if err != nil {
			return
		}
		again, err := parseLock("x.lock.hcl", l.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), l.Bytes()) {
			t.Errorf("%v\n%s\nis read as\n%s", err, l.Bytes(), again.Bytes())
		}
	})
}

// FuzzManifests: what a registry sends is refused or used, never a panic.
func FuzzManifests(f *testing.F) {
	index := build(f, "1.0.0", nil)
	raw, err := index.RawManifest()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"artifactType":"application/vnd.recipe.plugin.v1","manifests":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, f := range []format{pluginFormat, moduleFormat} {
			if v, err := parseIndex(data, f); err == nil {
				_, _ = v.targets()
			}
			_, _ = parseTarget(data, f)
		}
		_, _ = parseManifest(data)
	})
}

// A repository may change between two requests: what was chosen by its digest is what is fetched.
func TestATagThatMovesWhileItIsFetched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	first, err := build(t, "1.0.0", nil).Digest()
	if err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	b.fault(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/sha256:") && once.CompareAndSwap(false, true) {
			go b.fault(nil)
			b.put("1.0.0", build(t, "1.0.0", func(c *Build) { c.Docs = "# other\n" }))
		}
		return false
	})
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(text(err))
	}
	l, err := ReadLock(parse.LockFile(b.recipe))
	if err != nil || l.Plugins["words"].Index != first.String() {
		t.Errorf("locked %s, %v; want %s, which was read first", l.Plugins["words"].Index, err, first)
	}
}

// TestHostileManifests: sizes that are no limit, and documents that would fill the disk.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	layer := func(mediaType types.MediaType, size int64) v1.Descriptor {
		return v1.Descriptor{MediaType: mediaType, Size: size, Digest: digestOf([]byte(mediaType))}
	}
	for name, c := range map[string]struct {
		config, files int64
		want          string
	}{
		"good": {10, 10, ""}, "a configuration of no size": {-1, 10, "its configuration has -1 bytes"},
		"files of no size": {10, -1, "has -1 bytes"}, "much": {10, maxModule + 1, "at most"},
		"a large configuration": {maxManifest + 1, 10, "at most"},
	} {
		m := v1.Manifest{ArtifactType: moduleFormat.target, Config: layer(typeModuleConfig, c.config),
			Layers: []v1.Descriptor{layer(typeZip, c.files)}}
		for range 1000 {
			m.Layers = append(m.Layers, layer(typeDocs, maxDocument), layer(typeSBOM, -1))
		}
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parseTarget(raw, moduleFormat)
		if c.want == "" && (err != nil || len(parsed.documents) != 1) {
			t.Errorf("%s: %d documents, %v", name, len(parsed.documents), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestASignatureAmongManyAttachments is found.
func TestASignatureAmongManyAttachments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	index := build(t, "1.0.0", nil)
	b.put("1.0.0", index)
	private, public := keyPair(t)
	subject, err := partial.Descriptor(index)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRemote(b.source.String(), b.resolver.Registries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		img, err := newArtifact(typeSBOM, document(fmt.Append(nil, i), typeSBOM), subject)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.attach(t.Context(), img); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	policy := signature.Policy{Key: public}
	for range 10 { // the registry lists them in any order
		if _, err := b.resolver.Verify(t.Context(), b.source, "1.0.0", policy); err != nil {
			t.Fatal(text(err))
		}
	}
}

// TestASignatureAmongJunk is found, though others that say they are signatures come before it and cannot be read.
func TestASignatureAmongJunk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	index := build(t, "1.0.0", nil)
	b.put("1.0.0", index)
	private, public := keyPair(t)
	subject, err := partial.Descriptor(index)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRemote(b.source.String(), b.resolver.Registries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		img, err := newArtifact(bundleType+".v0.3+json", document(fmt.Append(nil, "junk ", i), bundleType+".v0.3+json"),
			subject)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.attach(t.Context(), img); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]repository{"junk": r, "junk that is not there": torn{r}} {
		found, err := signaturesOf(t.Context(), from, digest)
		if err != nil {
			t.Fatalf("%s: %s", name, text(err))
		}
		var bundles [][]byte
		for _, f := range found {
			bundles = append(bundles, f.bundle)
		}
		if _, err := signedBy([]signature.Policy{{Key: public}}, digest, bundles); err != nil {
			t.Errorf("%s: %s", name, text(err))
		}
	}
}

// torn lists attachments that are not there, before all others.
type torn struct{ repository }

func (r torn) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	list, err := r.repository.referrers(ctx, digest)
	missing := v1.Descriptor{ArtifactType: bundleType + ".v0.3+json", Digest: v1.Hash{Algorithm: "sha256",
		Hex: strings.Repeat("0", 64)}}
	return append([]v1.Descriptor{missing, missing}, list...), err
}
