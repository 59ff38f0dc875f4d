package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// consoleFile is what the language calls the source of an expression in its diagnostics.
const consoleFile = "<console>"

func newConsole(a *app) *cobra.Command {
	var recipe recipeFlags
	cmd := &cobra.Command{
		Use:   "console [FILE]",
		Short: "Evaluate expressions in a recipe",
		Long: `Evaluate expressions in a recipe: variables, locals, functions, blocks and their values as far as known
before they start. At a terminal it prompts; from a pipe it reads one expression per line. An expression goes
on in the next line while a bracket or a heredoc is open:

  echo 'var.steps * 2' | recipe console recipes/quickstart.hcl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			opts, err := recipe.options(a, file)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			if err := a.diagnose(r, diags, false); err != nil {
				return err
			}
			return a.converse(r)
		},
	}
	recipe.add(cmd)
	return cmd
}

// longestExpression is the length in bytes at which an expression is evaluated though a bracket is open.
const longestExpression = 64 << 10

// converse evaluates one expression after the other until the input ends. From a pipe, a mistake makes the command
// fail.
func (a *app) converse(r *schema.Recipe) error {
	f, isFile := a.in.(*os.File)
	asks := isFile && term.IsTerminal(int(f.Fd()))
	lines := bufio.NewScanner(a.in)
	lines.Buffer(nil, 1<<20)
	var err error
	var text strings.Builder // of an expression, line by line
	for more := true; more; {
		if asks {
			fmt.Fprint(a.out, a.style().Dim(map[bool]string{true: "> ", false: "… "}[text.Len() == 0]))
		}
		if more = lines.Scan(); more {
			text.WriteString(lines.Text() + "\n")
			if text.Len() < longestExpression && parse.Unfinished([]byte(text.String())) {
				continue
			}
		}
		src := strings.TrimSpace(text.String())
		text.Reset()
		switch src {
		case "":
			continue
		case "exit", "quit":
			return err
		}
		if strings.Contains(src, "\n") {
			src += "\n" // a heredoc ends with its line
		}
		if failed := a.evaluate(r, src); failed != nil && !asks {
			err = failed
		}
	}
	if asks {
		fmt.Fprintln(a.out)
	}
	if lines.Err() != nil {
		return fmt.Errorf("read expressions: %w", lines.Err())
	}
	return err
}

func (a *app) evaluate(r *schema.Recipe, src string) error {
	value, diags := r.EvaluateExpression(src, nil)
	shown := *r
	shown.Files = map[string]*hcl.File{consoleFile: {Bytes: []byte(src)}}
	if err := a.diagnose(&shown, diags, false); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, view.Expression(value))
	return err
}
