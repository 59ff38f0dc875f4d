package reference

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
)

const llmsHead = `# recipe

> recipe is to RL post-training of language models what Terraform is to infrastructure: one file (HCL) declares
> inference, environments, trainer and weight sync; ` + "`recipe plan`" + ` says what would happen, ` + "`recipe apply`" + ` makes it
> happen and keeps it happening.

For agents: [agents.md](agents.md) (` + "`recipe mcp`" + `), [AGENTS.md](../AGENTS.md), guides in [skills](../skills).
`

// LLMs is the index of the documentation for language models (llmstxt.org): the guides in the folder docs, the commands
// and the blocks, a line each.
func LLMs(docs string, root *cobra.Command, plugins []*schema.PluginSchema) (Pages, error) {
	var b strings.Builder
	b.WriteString(llmsHead)
	guides, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the guides: %w", err)
	}
	b.WriteString("\n## Guides\n\n")
	for _, path := range guides {
		title, err := titleOf(path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "- [%s](%s)\n", title, filepath.Base(path))
	}
	b.WriteString("\n## Commands\n\n")
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c != root {
			fmt.Fprintf(&b, "- [%s](cli/%s): %s\n", c.CommandPath(), pageName(c), c.Short)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				visit(sub)
			}
		}
	}
	visit(root)
	b.WriteString("\n## Blocks\n\n")
	for _, k := range kind.All() {
		for _, p := range plugins {
			if p.Kind == k {
				fmt.Fprintf(&b, "- [%s %q](blocks/%s.%s.md): %s\n", p.Kind, p.Name, p.Kind, p.Name, p.Summary)
			}
		}
	}
	return Pages{"llms.txt": b.String()}, nil
}

// titleOf is the first heading of a page.
func titleOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read a guide: %w", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if title, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			return strings.ReplaceAll(title, "`", ""), nil
		}
	}
	return "", fmt.Errorf("%s has no title: a line that begins with #", path)
}
