package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Long: `Print a completion script for a shell. It completes commands, flags, files, addresses of blocks, runs, outputs,
variables, and kinds and plugins. To load it in every session:

  bash:        recipe completion bash > ~/.local/share/bash-completion/completions/recipe
  zsh:         mkdir -p ~/.zfunc && recipe completion zsh > ~/.zfunc/_recipe
  fish:        recipe completion fish > ~/.config/fish/completions/recipe.fish
  powershell:  recipe completion powershell >> $PROFILE

bash needs its package bash-completion. zsh needs this line in ~/.zshrc, before the one with compinit:

  fpath=(~/.zfunc $fpath)`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			default:
				return fmt.Errorf("no completion for shell %q", args[0])
			}
		},
	}
}
