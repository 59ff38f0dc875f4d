package main

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"sync"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// app is where a command reads and writes, and which plugins it knows. Tests give their own.
type app struct {
	in       io.Reader
	out, err io.Writer
	commands io.Writer // err without the guards against workflow commands and escape sequences
	environ  []string  // as os.Environ
	json     bool      // the command line asks for JSON
	joined   bool      // out and err are read as one text, so errors are written once
	// endAtSignals makes a signal end this process at once, instead of the context of the command
	endAtSignals func()
	machine      func(dir string) doctor.Machine // this machine, as seen from a folder
	catalog      func() (*host.Catalog, error)
	// newCatalog makes a catalog of its own, for recipes of which one must not see what another requires
	newCatalog func() (*host.Catalog, error)
	gate       func() *trust.Gate // decides which programs of a recipe run
	ended      <-chan struct{}    // is closed when the command is to end
	planned    func(*plan.Plan)   // receives the plan that recipe plan makes; nil: it is not needed
	trusted    trustFlags         // of commands whose -r names a recipe only for its plugins

	mu       sync.Mutex
	lines    *bufio.Reader   // over in, of answers
	catalogs []*host.Catalog // all that were made
}

// newApp is the app of this process. The catalog is made when a command first asks for it.
func newApp(in io.Reader, out, err io.Writer, environ []string) *app {
	a := &app{in: in, out: out, err: err, environ: environ, endAtSignals: func() {},
		machine: doctor.Local}
	a.newCatalog = func() (*host.Catalog, error) {
		s, err := readSettings(environ)
		if err != nil {
			return nil, err
		}
		catalog, err := host.NewCatalog(builtins(), s.devOverrides(), interpreter.CacheDir())
		if err != nil {
			return nil, err
		}
		this := build.Read()
		catalog.Program, catalog.Build, catalog.Pass = this.Version, this.String(), s.PassEnvironment
		catalog.Store, catalog.Trust, catalog.Kubeconfigs = s.packageStore(), a.gate(), s.Kubeconfigs
		catalog.Confine = trust.Confine
		a.mu.Lock()
		defer a.mu.Unlock()
		a.catalogs = append(a.catalogs, catalog)
		return catalog, nil
	}
	a.catalog = sync.OnceValues(a.newCatalog)
	a.gate = sync.OnceValue(a.newGate)
	return a
}

// close ends the processes of the catalogs that commands have asked for.
func (a *app) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, c := range a.catalogs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// resolver finds packages where the settings say.
func (a *app) resolver() (packages.Resolver, error) {
	s, err := readSettings(a.environ)
	r := packages.Resolver{Store: s.packageStore()}
	for _, m := range s.Mirrors {
		r.Mirrors = append(r.Mirrors, packages.Mirror(m))
	}
	return r, err
}

// packageStore is where packages are, with the signatures that the settings demand.
func (a *app) packageStore() (*packages.Store, error) {
	s, err := readSettings(a.environ)
	return s.packageStore(), err
}

func (s settings) packageStore() *packages.Store {
	store := packages.NewStore(packageDir())
	for _, v := range s.Verify {
		store.Policies = append(store.Policies, packages.SourcePolicy{Prefix: v.Prefix, Policy: v.policy()})
	}
	return store
}

// packageDir is where packages of plugins are stored; losing it costs a fetch.
func packageDir() string { return filepath.Join(interpreter.CacheDir(), "packages") }

// style is what standard output can show.
func (a *app) style() view.Style { return view.StyleOf(a.out, a.environ) }

// errStyle is what standard error can show.
func (a *app) errStyle() view.Style { return view.StyleOf(a.err, a.environ) }
