package script

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// converter turns the body of a block into the JSON that the settings class is built from.
type converter struct {
	recipeDir string
	folder    string // where copies of code files go
}

// body is the attributes and nested blocks of a schema that have a value.
func (c converter) body(schema *spec.Schema, v cty.Value) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if v == cty.NilVal || v.IsNull() {
		return out, nil
	}
	given := v.AsValueMap()
	for _, a := range schema.Attributes {
		value, ok := given[a.Name]
		if !ok || value.IsNull() {
			continue
		}
		made, err := c.attribute(a, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		out[a.Name] = made
	}
	for _, b := range schema.Blocks {
		value, ok := given[b.Name]
		if !ok || value.IsNull() {
			continue
		}
		made, err := c.block(b, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		out[b.Name] = made
	}
	return out, nil
}

func (c converter) block(b *spec.Block, v cty.Value) (json.RawMessage, error) {
	if b.Nesting == spec.Single {
		made, err := c.body(b.Schema, v)
		if err != nil {
			return nil, err
		}
		return json.Marshal(made)
	}
	list := []map[string]json.RawMessage{}
	for _, element := range v.AsValueSlice() {
		made, err := c.body(b.Schema, element)
		if err != nil {
			return nil, err
		}
		list = append(list, made)
	}
	return json.Marshal(list)
}

func (c converter) attribute(a *spec.Attribute, v cty.Value) (json.RawMessage, error) {
	switch {
	case len(a.References) > 0:
		return reference(v)
	case a.Format == spec.FormatCode, a.Format == spec.FormatCallable:
		code, err := spec.ParseCallable(v.AsString())
		if err != nil {
			return nil, err
		}
		if code.Module != "" {
			return json.Marshal(map[string]string{"file": c.recipeDir, "function": code.Function, "module": code.Module})
		}
		file, err := code.Pinned(c.recipeDir, c.folder)
		if err != nil {
			return nil, err
		}
		original := code.File
		if !filepath.IsAbs(original) {
			original = filepath.Join(c.recipeDir, original)
		}
		return json.Marshal(map[string]string{"file": file, "function": code.Function, "original": original})
	}
	data, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return nil, fmt.Errorf("encode the value: %w", err)
	}
	return data, nil
}

// reference is how another inference block is reached.
func reference(v cty.Value) (json.RawMessage, error) {
	ref, err := spec.RefOf(v)
	if err != nil {
		return nil, err
	}
	var served outputs.Inference
	if err := ref.Decode(&served); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"address": ref.Address, "base_url": served.BaseURL, "model": served.Model,
		"api_key": served.APIKey})
}
