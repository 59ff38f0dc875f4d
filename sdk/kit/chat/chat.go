// Package chat reads the chat templates of a tokenizer in a local folder, in each of the forms in which models come: a
// file chat_template.jinja, a text in tokenizer_config.json, or several with names (a list or an object, as models with
// tool calling have).
package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Default is the name of a tokenizer's only template, and of the one that is used when none is asked for.
const Default = "default"

// Templates are chat templates by name.
type Templates map[string]string

// maxText bounds a file of a tokenizer: the vocabulary lies in others.
const maxText = 64 << 20

// Of reads the templates of the tokenizer in folder; none when it has none or when folder is no local folder, which is
// no error. Files win over tokenizer_config.json, as they do where transformers reads them. Named says that they come
// with names, so that one of them must be chosen; some programs fail on that form even when there is only one.
func Of(folder string) (found Templates, named bool, err error) {
	path := filepath.Join(folder, "tokenizer_config.json")
	data, err := regular.FollowFile(path, maxText)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("read the tokenizer's settings: %w", err)
	}
	found = Templates{}
	if err == nil {
		if found, named, err = parse(data); err != nil {
			return nil, false, fmt.Errorf("read the tokenizer's settings %s: %w", path, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(escape(folder), "additional_chat_templates", "*.jinja"))
	if err != nil {
		return nil, false, fmt.Errorf("look for chat templates in %s: %w", folder, err)
	}
	for _, file := range append(files, filepath.Join(folder, "chat_template.jinja")) {
		text, err := regular.FollowFile(file, maxText)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("read a chat template: %w", err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		if name == "chat_template" {
			name, named = Default, false
		}
		found[name] = string(text)
	}
	return found, named || len(found) > 1, nil
}

// escape keeps a folder's own [, * and ? from being read as a pattern.
func escape(folder string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(folder)
}

func parse(config []byte) (found Templates, named bool, err error) {
	var c struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, false, err
	}
	found = Templates{}
	var one string
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	switch raw := c.ChatTemplate; {
	case len(raw) == 0 || string(raw) == "null":
	case json.Unmarshal(raw, &one) == nil:
		found[Default] = one
	case json.Unmarshal(raw, &list) == nil:
		named = true
		for _, t := range list {
			found[t.Name] = t.Template
		}
	default:
		named = true
		if err := json.Unmarshal(raw, &found); err != nil {
			return nil, false,
				fmt.Errorf("chat_template must be a text, a list of {name, template} or an object of texts: %w", err)
		}
	}
	return found, named, nil
}

// Names lists the templates, sorted.
func (t Templates) Names() []string { return slices.Sorted(maps.Keys(t)) }

// Digests names every template by its digest, sorted and separated by blanks: two sides that share one of them can
// agree.
func (t Templates) Digests() string {
	all := make([]string, 0, len(t))
	for _, text := range t {
		all = append(all, Digest(text))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// Digest names a template by its content. Blank space at its ends, which editors add and templates of conversations do
// not use, does not count.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return hex.EncodeToString(sum[:6])
}
