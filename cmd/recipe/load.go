package main

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
)

// open loads the recipe that a command means and says what is wrong with it. Once something is wrong it has been said, and
// the error is only an exit code.
func (a *app) open(f *recipeFlags, args, targets []string, asJSON bool) (*session.Session, error) {
	req, err := f.request(a, args, targets)
	if err != nil {
		return nil, err
	}
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	s, diags := session.Open(req, catalog, nil, nil)
	if err := a.diagnose(nil, diags, asJSON); err != nil {
		return nil, err
	}
	return s, nil
}

func (a *app) diagnose(r *schema.Recipe, diags hcl.Diagnostics, asJSON bool) error  { return nil }
func (a *app) validated(r *schema.Recipe, diags hcl.Diagnostics, asJSON bool) error { return nil }
func (a *app) plugins() schema.Plugins                                              { c, _ := a.catalog(); return c }
