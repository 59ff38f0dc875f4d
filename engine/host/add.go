package host

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

// Add makes a plugin known by its path alone, which the user names: it is run without a question. Its name is the one
// that a recipe or dev_overrides gave to that path before, else what a binary calls itself, or the name of a Python
// file without its ending.
func (c *Catalog) Add(path string) (*schema.PluginSchema, error) { return c.add(path, true) }

// Know is Add for a path that a file names, such as the record of a run: it is run only when it is trusted.
func (c *Catalog) Know(path string) (*schema.PluginSchema, error) { return c.add(path, false) }

func (c *Catalog) add(path string, own bool) (*schema.PluginSchema, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	name := c.nameOf(absolute)
	if name == "" && script.IsFile(absolute) {
		name = strings.TrimSuffix(filepath.Base(absolute), filepath.Ext(absolute))
	}
	e, err := c.load(name, absolute, own)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overrides[e.schema.Name], c.external[absolute] = absolute, e
	return e.schema, nil
}

// nameOf is the name under which a path is known; empty: it is not.
func (c *Catalog) nameOf(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, known := range c.overrides {
		if known == path {
			return name
		}
	}
	return ""
}
