package packages

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/recipe-rl/recipe/schema/parse"
)

// TestInitSaysWhereAPackageCameFrom: from its source, a mirror or a layout, or from nowhere, since it is stored.
func TestInitSaysWhereAPackageCameFrom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.resolver.Registries.Transport = nil
	s.publish("1.0.0")
	module := tarGz(t, "", map[string]string{"eval.hcl": `output "x" { value = 1 }`})
	s.content["/eval.tar.gz"] = module
	words := s.required("~> 1.0")
	check := func(step string, r Resolver, q parse.Requirement, o Options, from string) {
		t.Helper()
		var got []Package
		o.Have = func(p Package) { got = append(got, p) }
		if _, err := r.Init(t.Context(), s.recipe, requires(q), o); err != nil {
			t.Fatalf("%s: %v", step, text(err))
		}
		version := "1.0.0"
		if q.Module {
			version = ""
		}
		if want := []Package{{What: q.String(), Version: version, From: from}}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", step, got, want)
		}
	}
	vendor := func(r Resolver) string {
		t.Helper()
		l, err := ReadLock(parse.LockFile(s.recipe))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "packages.tar")
		if err := r.Vendor(t.Context(), l, path); err != nil {
			t.Fatal(text(err))
		}
		return path
	}
	elsewhere := func(r Resolver, location string) Resolver {
		r.Store, r.Mirrors = NewStore(t.TempDir()), nil
		if location != "" {
			r.Mirrors = []Mirror{{Location: location}}
		}
		return r
	}

	check("first", s.resolver, words, Options{}, s.source.String())
	check("again", s.resolver, words, Options{Frozen: true}, "")
	check("asked for a newer one", s.resolver, words, Options{Upgrade: true}, "")
	vendored := vendor(s.resolver)
	check("on another machine", elsewhere(s.resolver, ""), words, Options{Frozen: true}, s.source.String())
	check("from a layout", elsewhere(s.resolver, vendored), words, Options{Frozen: true}, vendored)

	archives := s.resolver
	archives.Registries.Transport = s.web.Client().Transport
	eval := parse.Requirement{Name: "eval", Module: true, Source: s.web.URL + "/eval.tar.gz",
		Checksum: digestOf(module).String()}
	s.recipe = filepath.Join(t.TempDir(), "train.hcl")
	check("an archive", archives, eval, Options{}, eval.Source)
	check("an archive again", archives, eval, Options{Frozen: true}, "")
	vendored = vendor(archives)
	check("an archive from a layout", elsewhere(archives, vendored), eval, Options{Frozen: true}, vendored)
}
