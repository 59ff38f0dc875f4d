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

// inline reports whether chat_template holds the template itself.
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
	text, from, err := c.chosen(named, tokenizer)
	switch tools, _ := chat.ByName(tokenizer); {
	case from != "":
		facts["chat_template"], facts["chat_template_from"] = chat.Digest(text), from
		facts["tool_calls"] = toolFact(text)
	case tools != "":
		facts["tool_calls"] = string(tools)
	}
	return facts, err
}

// chosen is the template that the server will use, and where it stands; both are empty where it is not on this machine.
func (c ChatTemplate) chosen(named chat.Templates, tokenizer string) (text, from string, err error) {
	switch {
	case c.inline():
		return c.Text, "its attribute chat_template", nil
	case c.Text != "":
		// A relative path counts from the recipe, which a plan does not know; apply reports a file that is not there.
		if text, err := regular.FollowFile(c.Text, maxText); err == nil {
			return string(text), c.Text, nil
		}
	case len(named) > 0:
		if text, err = c.pick(named); err == nil {
			return text, tokenizer, nil
		}
	}
	return "", "", err
}

// Formats are how a chat template has the model write what a server reads out of its answers.
type Formats struct {
	Tools, Reasoning chat.Format // empty: none that is known
}

// formats reads the template that the server will use: the given file, or the tokenizer's own. Where it is not on this
// machine, the model's name decides.
func (c ChatTemplate) formats(file, tokenizer string) Formats {
	c.Text = cmp.Or(file, c.Text)
	named, _, err := chat.Of(tokenizer)
	if err != nil && file == "" {
		return Formats{}
	}
	text, from, err := c.chosen(named, tokenizer)
	switch {
	case err != nil:
		return Formats{}
	case from == "":
		tools, reasoning := chat.ByName(tokenizer)
		return Formats{tools, reasoning}
	}
	return Formats{chat.Tools(text), chat.Reasoning(text)}
}

// toolFact is the format of tool calls of a template for a plan.
func toolFact(template string) string {
	switch f := chat.Tools(template); {
	case f != "":
		return string(f)
	case chat.TakesTools(template):
		return "unknown"
	}
	return "none"
}

// Auto and None are values of the settings that name a parser.
const (
	Auto = "auto" // by the chat template
	None = "none"
)

// Parser is an engine's name of a parser: what a block names, or with auto what belongs to the format. Names are the
// engine's, by format.
func Parser(setting string, format chat.Format, names map[chat.Format]string) string {
	switch setting {
	case Auto:
		return names[format]
	case None:
		return ""
	}
	return setting
}

func writeTemplate(dir, text string) (string, error) {
	path := filepath.Join(dir, "chat_template.jinja")
	if err := regular.WriteFile(path, []byte(text)); err != nil {
		return "", fmt.Errorf("write the chat template: %w", err)
	}
	return path, nil
}
