package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/engine/bundle"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
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
		if file == "" && run.File != "" {
			file = filepath.Join(filepath.Dir(filepath.Dir(string(dir))), filepath.Base(run.File))
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

// maxRenewals bounds how many outdated tokens of a block are looked for; the record may have been edited.
const maxRenewals = 1000

// runTokens are the tokens of the blocks of a run, which are derived from its key.
func runTokens(dir state.Dir, run *state.Run) (tokens []string) {
	for address, block := range run.Blocks {
		for _, purpose := range []string{"data", "control"} {
			for n := range min(block.Renewals, maxRenewals) + 1 { // logs may have older ones
				if token, err := dir.Token(purpose, address, max(block.Renewals-n, 0)); err == nil {
					tokens = append(tokens, token)
				}
			}
		}
	}
	return tokens
}

// loadForBundle loads the recipe of a run, so that its secrets are known; nil when it cannot be loaded any more.
func (a *app) loadForBundle(recipe *recipeFlags, file string) *schema.Recipe {
	if file == "" {
		dir, run, err := locateRun("")
		if err != nil || run.File == "" {
			return nil
		}
		file = filepath.Join(filepath.Dir(filepath.Dir(string(dir))), filepath.Base(run.File))
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
