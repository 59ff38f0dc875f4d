package vllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
)

// chatTemplate decides which chat template the server gets: the file that the block names, or one picked out of a tokenizer that
// has several (a dict or a list, as models with tool calling have), written to dir. Empty: the tokenizer's only one.
func chatTemplate(c Config, model, recipeDir, dir string) (string, error) {
	if c.ChatTemplate != "" {
		if strings.ContainsAny(c.ChatTemplate, "{\n") {
			return writeTemplate(dir, c.ChatTemplate)
		}
		path := c.ChatTemplate
		if !filepath.IsAbs(path) {
			path = filepath.Join(recipeDir, path)
		}
		if _, err := os.Stat(path); err != nil {
			return "", &sdk.Error{Summary: "chat_template names a file that cannot be read", Remedy: "correct the path; it counts from the recipe's folder", Err: err}
		}
		return path, nil
	}
	named, err := namedTemplates(filepath.Join(model, "tokenizer_config.json"))
	if err != nil || len(named) == 0 {
		return "", err
	}
	name := c.ChatTemplateName
	if name == "" {
		name = "default"
	}
	text, ok := named[name]
	if !ok {
		return "", &sdk.Error{
			Summary: fmt.Sprintf("the tokenizer has several chat templates, but none is called %q", name),
			Detail:  "it has " + strings.Join(sortedKeys(named), ", "),
			Remedy:  "set chat_template_name to one of them",
		}
	}
	return writeTemplate(dir, text)
}

// namedTemplates reads the chat templates of a tokenizer that has several; none when it has one or is not in a local folder.
func namedTemplates(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer's settings: %w", err)
	}
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("read the tokenizer's settings %s: %w", path, err)
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(config.ChatTemplate, &list) == nil {
		named := make(map[string]string, len(list))
		for _, t := range list {
			named[t.Name] = t.Template
		}
		return named, nil
	}
	var dict map[string]string
	if json.Unmarshal(config.ChatTemplate, &dict) == nil {
		return dict, nil
	}
	return nil, nil // a single text, or none
}

func writeTemplate(dir, text string) (string, error) {
	path := filepath.Join(dir, "chat_template.jinja")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the chat template: %w", err)
	}
	return path, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
