// Package trust decides whether a program that a recipe brings may be run: a file of the recipe's folder, of an
// archive, or at any other path that the recipe names. It runs when this user has approved its content or the folder,
// or when the command says so; never because the checkout says so. SECURITY.md has the table of what asks here.
package trust

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// All is the word of --trust for everything that a command's recipe names.
const All = "all"

// Use is something that a command wants to run, or to hand credentials to.
type Use struct {
	Path string // absolute
	Why  string // ends "the recipe wants PATH to be …", for example "imported for its schema"
	// Digest is that of the content, "sha256:…". Empty: no digest covers what would run, as of the packages of a virtual
	// environment. Then a folder that the user trusts counts, and All.
	Digest string
	// Files are the other files that the digest covers, relative to the folder of Path.
	Files []string
	// Recorded: the record of a run names it, and the recipe may not. A run directory can come from somewhere else, so
	// what a person says for all that the recipe names does not count.
	Recorded bool
}

// Answer is what a person says to a question.
type Answer int

// The answers.
const (
	No     Answer = iota
	Once          // for this command
	Always        // remembered by digest, for this user
)

// Gate is the one place where a command asks. The nil gate allows nothing. It is safe for concurrent use.
type Gate struct {
	Store Store // what this user has approved before; empty: nothing counts
	// Folders reports that folders which the user trusts count. They do not in CI, where a folder is a stranger's.
	Folders bool
	// Sealed: nothing is allowed, whatever was approved. For tools of agents that promise to run nothing.
	Sealed bool
	// Ask asks a person. Nil: there is none, and nothing is asked.
	Ask func(Use) (Answer, error)
	// Approve has what a command allows as a whole remembered: apply runs it with all rights of the user.
	Approve bool
	// Tell is told of each program before it runs for the first time, without a question. Nil: nobody is.
	Tell func(Use)

	mu      sync.Mutex
	all     bool
	digests map[string]bool
	allowed map[string]Use // by path
	refused map[string]error
}

// Trust adds what the command line or the caller approves: digests, or All.
func (g *Gate) Trust(words ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.digests == nil {
		g.digests = map[string]bool{}
	}
	for _, w := range words {
		if w == All {
			g.all = true
		} else {
			g.digests[w] = true
		}
	}
}

// Check reports whether a word of --trust is one.
func Check(word string) bool {
	rest, ok := strings.CutPrefix(word, "sha256:")
	return word == All || ok && len(rest) == 64 && strings.Trim(rest, "0123456789abcdef") == ""
}

// Allow returns nil when a use is allowed, else an error that is a *schema.NotTrusted, or why it is not known.
func (g *Gate) Allow(u Use) error {
	if absolute, err := filepath.Abs(u.Path); err == nil && !strings.Contains(u.Path, "://") {
		u.Path = absolute
	}
	refusal := &schema.NotTrusted{Untrusted: diagnostic.Untrusted{Path: u.Path, Digest: u.Digest, Why: u.Why}}
	if g == nil {
		return refusal
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Sealed {
		return refusal
	}
	if u.Digest != "" && g.digests[u.Digest] {
		g.note(u)
		return nil
	}
	if g.all && !u.Recorded {
		g.note(u)
		if g.Approve && u.Digest != "" {
			_ = g.Store.Add(Entry{Digest: u.Digest, Path: u.Path}) // without it the next command asks
		}
		return nil
	}
	if g.Store.Holds(u, g.Folders) {
		g.note(u)
		return nil
	}
	if g.Ask == nil {
		return refusal
	}
	key := u.Path + " " + u.Digest
	if err, asked := g.refused[key]; asked {
		return err
	}
	answer, err := g.Ask(u)
	switch {
	case err != nil:
		return err
	case answer == No:
		if g.refused == nil {
			g.refused = map[string]error{}
		}
		g.refused[key] = refusal
		return refusal
	case answer == Always && u.Digest != "":
		if err := g.Store.Add(Entry{Digest: u.Digest, Path: u.Path}); err != nil {
			return err
		}
	}
	g.note(u)
	return nil
}

// note keeps an allowed use, and its digest for the rest of the command. The lock is held.
func (g *Gate) note(u Use) {
	if g.allowed == nil {
		g.allowed = map[string]Use{}
	}
	if _, told := g.allowed[u.Path]; !told && g.Tell != nil {
		g.Tell(u)
	}
	g.allowed[u.Path] = u
	if u.Digest != "" {
		if g.digests == nil {
			g.digests = map[string]bool{}
		}
		g.digests[u.Digest] = true
	}
}

// Settle ends All: from now on only what was allowed so far counts, as for an engine that works on after its apply.
func (g *Gate) Settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = false
}

// Digests are those that this command has been allowed, sorted; for the engine that plans in its place.
func (g *Gate) Digests() []string {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.digests))
}

// IsAll reports whether the command trusts everything.
func (g *Gate) IsAll() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all
}

// HasAllowed reports whether this process was allowed to run what was at a path.
func (g *Gate) HasAllowed(path string) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.allowed[path]
	return ok
}

// Below reports whether a path lies in a folder, or is it, after links are resolved.
func Below(path, folder string) bool {
	for _, p := range []*string{&path, &folder} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
		if absolute, err := filepath.Abs(*p); err == nil {
			*p = absolute
		}
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
