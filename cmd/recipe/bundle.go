package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/engine/bundle"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/parse"
)

// writeBundle writes the findings, the recipe and its run into an archive that only its owner can read. Without a
// recipe it takes the run here, if there is one.
func (a *app) writeBundle(ctx context.Context, path, file string, r *schema.Recipe, findings []doctor.Finding) error {
	contents := bundle.Contents{Texts: map[string][]byte{}, Files: map[string]string{}}
	var err error
	if contents.Texts["doctor.json"], err = json.MarshalIndent(findings, "", "  "); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if contents.Texts["program.json"], err = json.MarshalIndent(build.Read(), "", "  "); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	contents.Texts["environment.txt"] = bundle.Names(a.environ)
	dir, run, err := locateRun(file)
	switch {
	case errors.Is(err, errNoRun):
	case err != nil:
		return fmt.Errorf("find the run for the bundle: %w", err)
	default:
		contents.Run = dir
	}
	var secrets []string
	if r != nil {
		secrets = r.Secrets()
	}
	if run != nil {
		secrets = append(secrets, runTokens(dir, run)...)
		if file == "" {
			file = recordedRecipe(dir, run)
		}
	}
	if file != "" {
		contents.Files["recipe/"+filepath.Base(file)] = file
	}
	var archive bytes.Buffer
	if err := bundle.Write(&archive, contents, bundle.NewRedactor(secrets, a.environ)); err != nil {
		return err
	}
	if err := outfile.Write(ctx, path, archive.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	_, err = fmt.Fprintf(a.err, "%s (%d kB): secrets and samples are left out; look through it before you send it\n", path,
		(archive.Len()+999)/1000)
	return err
}

// recordedRecipe is the recipe beside a run directory; empty: the record names none. Who has made the record must not
// choose another file there, such as .env.
func recordedRecipe(dir state.Dir, run *state.Run) string {
	if path := recipePath(dir, run); parse.IsRecipeFile(filepath.Base(path)) {
		return path
	}
	return ""
}

// maxTokens bounds how many tokens are looked for; the record may have been edited.
const maxTokens = 20_000

// runTokens are the tokens of the blocks of a run, which are derived from its key. The current ones are first, then
// outdated ones, which logs may contain, the newest first.
func runTokens(dir state.Dir, run *state.Run) (tokens []string) {
	addresses := slices.SortedFunc(maps.Keys(run.Blocks), func(a, b addr.Block) int {
		return cmp.Compare(a.String(), b.String())
	})
	for n := 0; len(addresses) > 0; n++ {
		var more []addr.Block
		for _, address := range addresses {
			if len(tokens) >= maxTokens {
				return tokens
			}
			renewals := run.Blocks[address].Renewals
			for _, purpose := range []string{"data", "control"} {
				if token, err := dir.Token(purpose, address, max(renewals-n, 0)); err == nil {
					tokens = append(tokens, token)
				}
			}
			if n < renewals {
				more = append(more, address)
			}
		}
		addresses = more
	}
	return tokens
}

// loadForBundle loads the recipe of a run, so that its secrets are known; nil when it cannot be loaded any more.
func (a *app) loadForBundle(recipe *recipeFlags, file string) *schema.Recipe {
	if file == "" {
		dir, run, err := locateRun("")
		if err != nil {
			return nil
		}
		file = recordedRecipe(dir, run)
	}
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	opts, err := recipe.options(a, file)
	if err != nil {
		return nil
	}
	r, _ := schema.Load(file, opts)
	return r
}
