package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// write puts a recipe into the bench's file and returns what it requires.
func (b *bench) write(text string) Requires {
	b.t.Helper()
	if err := os.WriteFile(b.recipe, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return func(found Modules) []parse.Requirement {
		r, _ := schema.Load(b.recipe, schema.Options{Plugins: found})
		return slices.Concat(r.Required, r.Modules)
	}
}

// module publishes a version of a module and returns its source.
func (b *bench) module(name, version string, files map[string]string) string {
	b.t.Helper()
	index, err := ModuleIndex(version, contents(files))
	if err != nil {
		b.t.Fatal(err)
	}
	dir := b.t.TempDir()
	if err := WriteLayout(b.t.Context(), dir, version, index); err != nil {
		b.t.Fatal(err)
	}
	source := b.at(name)
	if _, _, err := b.resolver.Registries.Push(b.t.Context(), dir, "", source); err != nil {
		b.t.Fatal(text(err))
	}
	return source.String()
}

// at is a source in the bench's registry.
func (b *bench) at(name string) Source {
	return Source{repository: strings.TrimSuffix(b.source.repository, "words") + name}
}

func contents(files map[string]string) map[string]File {
	out := map[string]File{}
	for name, text := range files {
		out[name] = File{Content: []byte(text)}
	}
	return out
}

// load reads the bench's recipe with what is locked and stored, and returns its outputs as text.
func (b *bench) load() (outputs map[string]string, digest string, err error) {
	r, diags := schema.Load(b.recipe, schema.Options{Plugins: storeOnly{Store: b.resolver.Store}})
	if diags.HasErrors() {
		return nil, "", diags
	}
	outputs = map[string]string{}
	for _, o := range r.Outputs {
		outputs[o.Name] = o.Value.AsString()
	}
	return outputs, r.Digest, nil
}

// storeOnly knows the modules of a store and no plugin.
type storeOnly struct {
	Modules
	*Store
}

func (s storeOnly) Module(recipe string, q parse.Requirement) (string, error) {
	return s.Store.Module(recipe, q)
}

// TestModulesFromARegistry: a module that calls another from a registry, and one in its own folder, is locked, read
// without the registry, and upgraded.
func TestModulesFromARegistry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inner := map[string]string{"inner.hcl": `output "x" { value = file("${path.module}/text") }`, "text": "from inner"}
	b.module("inner", "1.0.0", inner)
	eval := map[string]string{"eval.hcl": fmt.Sprintf(`
module "inner" {
  source  = %q
  version = "~> 1.0"
}
module "beside" { source = "./beside" }
variable "version" { default = "" }
output "x" { value = "${module.inner.x}, ${module.beside.x}" }
`, b.at("inner")), "beside/b.hcl": `output "x" { value = "from beside" }`, "README.md": "# eval\n"}
	source := b.module("eval", "1.2.0", eval)
	requires := b.write(fmt.Sprintf(`
module "eval" {
  source  = %q
  version = "~> 1.2"
}
output "x" { value = module.eval.x }
`, source))
	initialize := func(o Options) ([]Change, error) { return b.resolver.Init(t.Context(), b.recipe, requires, o) }

	if _, _, err := b.load(); err == nil || !strings.Contains(err.Error(), "recipe init") {
		t.Errorf("a module that is not locked: %v", err)
	}
	_, err := initialize(Options{Frozen: true})
	b.refused(err, "--locked", "")
	changes, err := initialize(Options{})
	if err != nil || len(changes) != 2 || changes[0].What != "module eval" || changes[1].What != "module eval.inner" {
		t.Fatalf("got %+v, %v", changes, text(err))
	}
	before := b.lock()
	outputs, digest, err := b.load()
	if err != nil || outputs["x"] != "from inner, from beside" {
		t.Fatalf("got %v, %v", outputs, err)
	}

	// Another machine: other folders, the same recipe.
	l, err := ReadLock(parse.LockFile(b.recipe))
	if err != nil {
		t.Fatal(err)
	}
	vendored := filepath.Join(t.TempDir(), "packages.tar")
	if err := b.resolver.Vendor(t.Context(), l, vendored); err != nil {
		t.Fatal(text(err))
	}
	b.module("eval", "1.3.0", eval)
	here := b.resolver
	b.resolver.Store, b.resolver.Mirrors = NewStore(t.TempDir()), []Mirror{{Location: vendored}}
	if _, err := initialize(Options{Frozen: true}); err != nil || b.lock() != before {
		t.Errorf("from a vendored layout: %v", text(err))
	}
	if _, there, err := b.load(); err != nil || there != digest {
		t.Errorf("there the recipe has the digest %s, here %s: %v", there, digest, err)
	}

	b.resolver = here
	changes, err = initialize(Options{Upgrade: true})
	if err != nil || len(changes) != 1 || changes[0].Version != "1.3.0" {
		t.Errorf("an upgrade: %+v, %v", changes, text(err))
	}
	before = b.lock()
	b.server.Close() // what is locked and stored needs no registry
	if _, err := initialize(Options{Frozen: true}); err != nil || b.lock() != before {
		t.Errorf("a second init: %v", text(err))
	}
}

// TestAChangedModuleIsNotRead: neither its files in the store nor its tag may change.
func TestAChangedModuleIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	source := b.module("eval", "1.0.0", map[string]string{"eval.hcl": `output "x" { value = "good" }`})
	requires := b.write(fmt.Sprintf("module \"eval\" { source = %q }\noutput \"x\" { value = module.eval.x }\n", source))
	if _, err := b.resolver.Init(t.Context(), b.recipe, requires, Options{}); err != nil {
		t.Fatal(text(err))
	}
	before := b.lock()
	folder, err := b.resolver.Store.Module(b.recipe, requires(nil)[0])
	if err != nil {
		t.Fatal(text(err))
	}
	file := filepath.Join(folder, "eval.hcl")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`output "x" { value = "evil" }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if outputs, _, err := b.load(); err == nil || !strings.Contains(err.Error(), "not as the lock says") {
		t.Errorf("a changed file of a module is read: %v, %v", outputs, err)
	}
	if _, err := b.resolver.Init(t.Context(), b.recipe, requires, Options{Frozen: true}); err != nil {
		t.Errorf("init does not repair it: %v", text(err))
	}
	if outputs, _, err := b.load(); err != nil || outputs["x"] != "good" {
		t.Errorf("after init: %v, %v", outputs, err)
	}

	index, err := ModuleIndex("1.0.0", contents(map[string]string{"eval.hcl": `output "x" { value = "evil" }`}))
	if err != nil {
		t.Fatal(err)
	}
	b.source = b.at("eval")
	b.put("1.0.0", index)
	b.resolver.Store = NewStore(t.TempDir())
	_, err = b.resolver.Init(t.Context(), b.recipe, requires, Options{})
	b.refused(err, "other content has been published under the same version", before)
}

// TestAModuleStaysInItsPackage: it cannot read a recipe, or run a program, of the machine.
func TestAModuleStaysInItsPackage(t *testing.T) {
	t.Parallel()
	for name, recipe := range map[string]string{
		"a folder above":   `module "x" { source = "../../elsewhere" }`,
		"another folder":   `module "x" { source = "/etc" }`,
		"a plugin above":   "recipe {\n required_plugins {\n words = { source = \"../words\" }\n }\n}",
		"a plugin outside": "recipe {\n required_plugins {\n words = { source = \"/usr/bin/words\" }\n }\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			source := b.module("eval", "1.0.0", map[string]string{"eval.hcl": recipe})
			requires := b.write(fmt.Sprintf("module \"eval\" { source = %q }\n", source))
			if _, err := b.resolver.Init(t.Context(), b.recipe, requires, Options{}); err != nil {
				t.Fatal(text(err))
			}
			if _, _, err := b.load(); err == nil || !strings.Contains(err.Error(), "is not in the package") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSignaturesOfModulesAreDemanded by the recipe and by the settings, as those of plugins.
func TestSignaturesOfModulesAreDemanded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	private, public := keyPair(t)
	source := b.module("eval", "1.0.0", map[string]string{"eval.hcl": `output "x" { value = "good" }`})
	plain := fmt.Sprintf("module \"eval\" {\n  source = %q\n}\noutput \"x\" { value = module.eval.x }\n", source)
	requires := b.write(strings.Replace(plain, "\n}", fmt.Sprintf("\n  verify = { key = %q }\n}", public), 1))
	initialize := func() error {
		_, err := b.resolver.Init(t.Context(), b.recipe, requires, Options{})
		return err
	}
	b.refused(initialize(), "it is not signed", "")
	if _, err := b.resolver.Registries.Sign(t.Context(), b.at("eval"), "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	if err := initialize(); err != nil {
		t.Fatal(text(err))
	}
	if _, _, err := b.load(); err != nil {
		t.Error(err)
	}
	_, other := keyPair(t)
	b.write(plain)
	b.resolver.Store.Policies = []SourcePolicy{{Policy: signature.Policy{Key: other}}}
	if _, _, err := b.load(); err == nil || !strings.Contains(err.Error(), "none of its 1 signatures") {
		t.Errorf("a module that the settings refuse is read: %v", err)
	}
}

// site is a web server with archives.
type site struct {
	*bench
	web     *httptest.Server
	content map[string][]byte // by path
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{bench: newBench(t), content: map[string][]byte{}}
	s.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := string(s.content[r.URL.Path]); strings.HasPrefix(to, "Location: ") {
			http.Redirect(w, r, strings.TrimPrefix(to, "Location: "), http.StatusFound)
			return
		}
		if s.content[r.URL.Path] == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(s.content[r.URL.Path])
	}))
	t.Cleanup(s.web.Close)
	s.resolver.Registries.Transport = s.web.Client().Transport
	return s
}

func (s *site) init(requires Requires, o Options) error {
	_, err := s.resolver.Init(s.t.Context(), s.recipe, requires, o)
	return err
}

// calls writes a recipe that calls the module in the archive at a path.
func (s *site) calls(path string, content []byte) Requires {
	return s.write(fmt.Sprintf("module \"eval\" {\n  source = %q\n  checksum = %q\n}\n"+
		"output \"x\" { value = module.eval.x }\n", s.web.URL+path, digestOf(content)))
}

// tarGz packs files as a code host does: with a global header and a folder around them.
func tarGz(t testing.TB, top string, files map[string]string, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	put := func(h tar.Header, content string) {
		if h.Typeflag != tar.TypeXGlobalHeader {
			h.Size, h.Mode = int64(len(content)), 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	put(tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "commit"}}, "")
	if top != "" {
		put(tar.Header{Typeflag: tar.TypeDir, Name: top}, "")
	}
	for name, content := range files {
		put(tar.Header{Typeflag: tar.TypeReg, Name: top + name}, content)
	}
	for _, h := range more {
		put(h, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestModulesInArchives of all forms are locked by their checksum, and read without the server; a vendored layout has
// them.
func TestModulesInArchives(t *testing.T) {
	t.Parallel()
	files := map[string]string{"eval.hcl": `output "x" { value = file("${path.module}/sub/text") }`, "sub/text": "good"}
	zipped, err := archive(contents(files), zip.Deflate)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{"/eval.tar.gz": tarGz(t, "eval-1.2.0/", files), "/eval.zip": zipped} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.content["/moved"+path], s.content[path] = content, []byte("Location: /moved"+path)
			requires := s.calls(path, content)
			s.refused(s.init(requires, Options{Frozen: true}), "--locked", "")
			if err := s.init(requires, Options{}); err != nil {
				t.Fatal(text(err))
			}
			if got, _, err := s.load(); err != nil || got["x"] != "good" {
				t.Fatalf("got %v, %v", got, err)
			}
			before := s.lock()
			l, err := ReadLock(parse.LockFile(s.recipe))
			if err != nil {
				t.Fatal(err)
			}
			vendored := filepath.Join(t.TempDir(), "packages.tar")
			if err := s.resolver.Vendor(t.Context(), l, vendored); err != nil {
				t.Fatal(text(err))
			}
			s.web.Close()
			if err := s.init(requires, Options{Frozen: true}); err != nil {
				t.Errorf("a second init: %v", text(err))
			}
			s.resolver.Store, s.resolver.Mirrors = NewStore(t.TempDir()), []Mirror{{Location: vendored}}
			if err := s.init(requires, Options{Frozen: true}); err != nil || s.lock() != before {
				t.Errorf("from a vendored layout: %v", text(err))
			}
			if got, _, err := s.load(); err != nil || got["x"] != "good" {
				t.Errorf("there: %v, %v", got, err)
			}
		})
	}
}

// TestArchivesThatAreRefused: each with what to do, and the lock stays.
func TestArchivesThatAreRefused(t *testing.T) {
	t.Parallel()
	good := map[string]string{"eval.hcl": `output "x" { value = "good" }`}
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the other host was asked")
	}))
	t.Cleanup(elsewhere.Close)
	for name, c := range map[string]struct {
		served, promised []byte
		want             string
	}{
		"another checksum":   {tarGz(t, "", good), []byte("x"), "ask its author whether it was changed"},
		"another host":       {[]byte("Location: " + elsewhere.URL + "/x"), []byte("x"), "write it as source"},
		"away from https":    {[]byte("Location: http://127.0.0.1/x"), []byte("x"), "redirects to elsewhere"},
		"redirects for ever": {[]byte("Location: /x"), []byte("x"), "more than 5 redirects"},
		"no such file":       {nil, []byte("x"), "answered 404"},
		"no archive":         {[]byte("hello, world"), nil, "expected a .tar, .tar.gz or .zip"},
		"a link": {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc"}), nil,
			"regular"},
		"a hard link": {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "eval.hcl"}), nil,
			"regular"},
		"a device":             {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeChar, Name: "d"}), nil, "regular"},
		"a path out":           {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeReg, Name: "../x"}), nil, "is refused"},
		"a path from the root": {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeReg, Name: "/x"}), nil, "is refused"},
		"a name twice":         {tarGz(t, "", good, tar.Header{Typeflag: tar.TypeReg, Name: "eval.hcl"}), nil, "twice"},
		"a path out in a zip":  {hostile(t, entry("../x", 0o644)), nil, "is refused"},
		"a link in a zip":      {hostile(t, entry("l", 0o777|fs.ModeSymlink)), nil, "regular"},
		"too much": {tarGz(t, "", map[string]string{"eval.hcl": strings.Repeat("#", maxModule+1)}), nil,
			"more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.content["/x"] = c.served
			if c.promised == nil {
				c.promised = c.served
			}
			s.refused(s.init(s.calls("/x", c.promised), Options{}), c.want, "")
			if trees, _ := filepath.Glob(filepath.Join(s.resolver.Store.dir, "trees", "*")); len(trees) > 0 {
				t.Errorf("unpacked: %v", trees)
			}
		})
	}
}

// Folders hold nothing, but a million of them keep a reader busy.
func TestEntriesOfAnArchiveAreBounded(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"a tar": tarGz(t, "", nil, slices.Repeat([]tar.Header{{Typeflag: tar.TypeDir, Name: "d/"}}, 100)...),
		"a zip": hostile(t, slices.Repeat([]zip.FileHeader{folder("d/")}, 300)...),
	} {
		path := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = readArchive(f, limits{bytes: 30, files: 4}); err == nil {
			t.Errorf("%s of %d bytes was read", name, len(content))
		}
		_ = f.Close()
	}
}

// TestAChangedArchiveIsRefused on a machine that does not have it yet, and a module in one where signatures are
// demanded.
func TestAChangedArchiveIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	content := tarGz(t, "", map[string]string{"eval.hcl": `output "x" { value = "good" }`})
	s.content["/eval.tar.gz"] = content
	requires := s.calls("/eval.tar.gz", content)
	if err := s.init(requires, Options{}); err != nil {
		t.Fatal(text(err))
	}
	before := s.lock()
	s.content["/eval.tar.gz"] = tarGz(t, "", map[string]string{"eval.hcl": `output "x" { value = "evil" }`})
	s.resolver.Store = NewStore(t.TempDir())
	s.refused(s.init(requires, Options{}), "is not the archive that its checksum promises", before)

	s.content["/eval.tar.gz"] = content
	_, public := keyPair(t)
	s.resolver.Store.Policies = []SourcePolicy{{Prefix: address(s.web.URL), Policy: signature.Policy{Key: public}}}
	s.refused(s.init(requires, Options{}), "which has no signature", before)
	if _, _, err := s.load(); err == nil || !strings.Contains(err.Error(), "which has no signature") {
		t.Errorf("it is read: %v", err)
	}

	// The recipe takes the new content: another checksum is another entry, which --locked refuses.
	s.resolver.Store.Policies = nil
	next := tarGz(t, "", map[string]string{"eval.hcl": `output "x" { value = "new" }`})
	s.content["/eval.tar.gz"] = next
	requires = s.calls("/eval.tar.gz", next)
	s.refused(s.init(requires, Options{Frozen: true}), "another checksum", before)
	if err := s.init(requires, Options{}); err != nil {
		t.Fatal(text(err))
	}
	if got, _, err := s.load(); err != nil || got["x"] != "new" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestAPluginInAnArchive is an OCI layout with its schema, its platforms and its signatures.
func TestAPluginInAnArchive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "words.tar")
	private, public := keyPair(t)
	layout := filepath.Join(dir, "layout")
	if err := WriteLayout(t.Context(), layout, "1.2.0", build(t, "1.2.0", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := SignLayout(t.Context(), layout, private); err != nil {
		t.Fatal(err)
	}
	if err := writeTar(layout, file); err != nil {
		t.Fatal(err)
	}
	plain, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{"/words.tar": plain, "/words.tar.gz": compressed.Bytes()} {
		s.content[path] = content
		q := parse.Requirement{Name: "words", Source: s.web.URL + path, Version: "~> 1.0",
			Checksum: digestOf(content).String(), Verify: parse.Verify{Key: public}}
		s.recipe = filepath.Join(t.TempDir(), "train.hcl")
		if err := s.init(requires(q), Options{}); err != nil {
			t.Fatal(text(err))
		}
		locked, err := s.resolver.Store.Locked(s.recipe, q)
		if err != nil || locked.Entry.Version != "1.2.0" || len(locked.Entry.Signatures) != 1 {
			t.Fatalf("got %+v, %v", locked, text(err))
		}
		if err := locked.Check(); err != nil {
			t.Error(err)
		}
		before := s.lock()
		l, err := ReadLock(parse.LockFile(s.recipe))
		if err != nil {
			t.Fatal(err)
		}
		vendored := filepath.Join(t.TempDir(), "packages")
		if err := s.resolver.Vendor(t.Context(), l, vendored); err != nil {
			t.Fatal(text(err))
		}
		there := s.resolver
		there.Store, there.Mirrors = NewStore(t.TempDir()), []Mirror{{Location: vendored}}
		if _, err := there.Init(t.Context(), s.recipe, requires(q), Options{Frozen: true}); err != nil || s.lock() != before {
			t.Errorf("from a vendored layout: %v", text(err))
		}
		q.Version = "~> 2.0"
		s.refused(s.init(requires(q), Options{}), `which "~> 2.0" does not allow`, before)
	}
	content := tarGz(t, "", map[string]string{"words.py": "x = 1"})
	s.content["/words.py.tar.gz"] = content
	s.recipe = filepath.Join(t.TempDir(), "train.hcl")
	s.refused(s.init(requires(parse.Requirement{Name: "words", Source: s.web.URL + "/words.py.tar.gz",
		Checksum: digestOf(content).String()}), Options{}), "recipe plugin build --out", "")
}

// FuzzArchive: whatever an archive of a module has, its names stay below the folder, and its sizes within the limits.
func FuzzArchive(f *testing.F) {
	f.Add(tarGz(f, "eval-1.2.0/", map[string]string{"eval.hcl": "locals {}"}))
	f.Add(hostile(f, entry("../x", 0o644), entry("l", 0o777|fs.ModeSymlink)))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		limit := limits{bytes: 1 << 20, files: 100}
		files, err := readArchive(file, limit)
		if err != nil {
			return
		}
		total := int64(0)
		for name, f := range withoutTop(files) {
			if err := checkName(name); err != nil {
				t.Error(err)
			}
			total += int64(len(f.Content))
		}
		if total > limit.bytes || len(files) > limit.files {
			t.Errorf("%d bytes in %d files", total, len(files))
		}
	})
}
