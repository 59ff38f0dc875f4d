package vllm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/chat"
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
	templates, named, err := chat.Of(model)
	if err != nil || !named {
		return "", err
	}
	text, err := pick(c, templates)
	if err != nil {
		return "", err
	}
	return writeTemplate(dir, text)
}

// pick takes the template that the block names out of those that the tokenizer has.
func pick(c Config, named chat.Templates) (string, error) {
	name := c.ChatTemplateName
	if name == "" {
		name = chat.Default
	}
	text, ok := named[name]
	if !ok {
		return "", &sdk.Error{
			Summary: fmt.Sprintf("the tokenizer has several chat templates, but none is called %q", name),
			Detail:  "it has " + strings.Join(named.Names(), ", "),
			Remedy:  "set chat_template_name to one of them",
		}
	}
	return text, nil
}

// templateFacts say which chat template the server will use, and which ones its tokenizer has, so that a plan can compare them with
// those of environments and trainers. What is not on this machine is left out: it is not known.
func templateFacts(c Config) (map[string]string, error) {
	facts := map[string]string{}
	folder := c.tokenizer()
	named, _, err := chat.Of(folder)
	if err != nil {
		return facts, err
	}
	if all := named.Digests(); all != "" {
		facts["tokenizer_chat_template"] = all
	}
	switch {
	case strings.ContainsAny(c.ChatTemplate, "{\n"):
		facts["chat_template"], facts["chat_template_from"] = chat.Digest(c.ChatTemplate), "its attribute chat_template"
	case c.ChatTemplate != "":
		// A relative path counts from the recipe, which a plan does not know; apply reports a file that is not there.
		if text, err := os.ReadFile(c.ChatTemplate); err == nil {
			facts["chat_template"], facts["chat_template_from"] = chat.Digest(string(text)), c.ChatTemplate
		}
	case len(named) > 0:
		text, err := pick(c, named)
		if err != nil {
			return facts, err
		}
		facts["chat_template"], facts["chat_template_from"] = chat.Digest(text), folder
	}
	return facts, nil
}

func writeTemplate(dir, text string) (string, error) {
	path := filepath.Join(dir, "chat_template.jinja")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the chat template: %w", err)
	}
	return path, nil
}
