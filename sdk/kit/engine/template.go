package engine

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
)

// ChatTemplate is a block's settings of the chat template.
type ChatTemplate struct {
	Text string // attribute chat_template: a file, or the template itself
	Name string // which one to take from a tokenizer that has several
	// NameAttribute is the attribute that gives Name; default: chat_template_name.
	NameAttribute string
}

func (c ChatTemplate) nameAttribute() string { return cmp.Or(c.NameAttribute, "chat_template_name") }

// inline says whether chat_template holds the template itself.
func (c ChatTemplate) inline() bool { return strings.ContainsAny(c.Text, "{\n") }

// File decides which chat template the server gets: the file that the block names, or one picked out of a tokenizer
// that has several (a dict or a list, as models with tool calling have), written to dir. Empty: the tokenizer's only
// one.
func (c ChatTemplate) File(model, recipeDir, dir string) (string, error) {
	if c.Text != "" {
		if c.inline() {
			return writeTemplate(dir, c.Text)
		}
		path := c.Text
		if !filepath.IsAbs(path) {
			path = filepath.Join(recipeDir, path)
		}
		if _, err := os.Stat(path); err != nil {
			return "", &sdk.Error{Summary: "chat_template names a file that cannot be read", Err: err,
				Path: cty.GetAttrPath("chat_template"), Remedy: "correct the path; it counts from the recipe's folder"}
		}
		return path, nil
	}
	templates, named, err := chat.Of(model)
	if err != nil || (!named && (c.Name == "" || c.Name == chat.Default)) {
		return "", err
	}
	if len(templates) == 0 { // a name of the hub, whose files the server fetches
		return "", &sdk.Error{
			Summary: fmt.Sprintf("%s = %q cannot be looked up: %s is not a folder with a chat template",
				c.nameAttribute(), c.Name, model),
			Path:   cty.GetAttrPath(c.nameAttribute()),
			Remedy: "give the model as a folder, or the template itself or its file as chat_template",
		}
	}
	text, err := c.pick(templates)
	if err != nil {
		return "", err
	}
	return writeTemplate(dir, text)
}

// pick takes the template that the block names out of those that the tokenizer has.
func (c ChatTemplate) pick(named chat.Templates) (string, error) {
	name := c.Name
	if name == "" {
		name = chat.Default
	}
	text, ok := named[name]
	if !ok {
		return "", &sdk.Error{
			Summary: fmt.Sprintf("the tokenizer has several chat templates, but none is called %q", name),
			Detail:  "it has " + strings.Join(named.Names(), ", "),
			Remedy:  "set " + c.nameAttribute() + " to one of them",
			Path:    cty.GetAttrPath(c.nameAttribute()),
		}
	}
	return text, nil
}

// Facts say which chat template the server will use, and which ones the tokenizer in a folder has, so that a plan can
// compare them with those of environments and trainers. What is not on this machine is left out: it is not known.
func (c ChatTemplate) Facts(tokenizer string) (map[string]string, error) {
	facts := map[string]string{}
	named, _, err := chat.Of(tokenizer)
	if err != nil {
		return facts, err
	}
	if all := named.Digests(); all != "" {
		facts["tokenizer_chat_template"] = all
	}
	switch {
	case c.inline():
		facts["chat_template"], facts["chat_template_from"] = chat.Digest(c.Text), "its attribute chat_template"
	case c.Text != "":
		// A relative path counts from the recipe, which a plan does not know; apply reports a file that is not there.
		if text, err := regular.FollowFile(c.Text, maxText); err == nil {
			facts["chat_template"], facts["chat_template_from"] = chat.Digest(string(text)), c.Text
		}
	case len(named) > 0:
		text, err := c.pick(named)
		if err != nil {
			return facts, err
		}
		facts["chat_template"], facts["chat_template_from"] = chat.Digest(text), tokenizer
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
