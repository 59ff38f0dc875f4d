package host

import (
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/schema"
)

// Add makes a plugin known by its path alone, under the name that it gives itself.
func (c *Catalog) Add(path string) (*schema.PluginSchema, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	e, err := loadExternal(absolute, c.cacheDir)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overrides[e.schema.Name], c.external[absolute] = absolute, e
	return e.schema, nil
}
