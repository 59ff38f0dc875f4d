package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/draft"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

func newNew(a *app) *cobra.Command {
	var r draft.Request
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a recipe from a reward function, a script of TRL or verl, or an environment",
		Long: `Write NAME.hcl from what you have. The source is read, never run, and nothing is downloaded. No file is
overwritten.

--from names the source:

  FILE.py:FUNCTION  a reward function with TRL's arguments; --data names its dataset of prompts
  FILE.py           a script with TRL's GRPOTrainer, an environment of Atropos, a taskset of verifiers, or a file with
                    one reward function
  FILE.sh           a script that starts verl's main_ppo, a script of TRL's with its flags, or trl grpo
  FILE.yaml         settings of trl grpo, or of verl

Settings of TRL and verl keep their names and values in the trainer's config. What recipe does itself moves to the block
that does it, and what is left is listed. Without --from the recipe is an example that learns on any machine.`,
		Example: "  recipe new sums\n  recipe new math --from rewards.py:accuracy --data train.jsonl\n" +
			"  recipe new grpo --from train.py\n  recipe new gsm8k --from run_gsm8k.sh --on gpus",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r.Name = args[0]
			return a.writeDraft(r)
		},
	}
	cmd.Flags().StringVar(&r.From, "from", "", "the `SOURCE` that the recipe is made from")
	cmd.Flags().StringVar(&r.Data, "data", "", "the `DATASET` of prompts: a file, a folder or a name of the Hugging Face hub")
	cmd.Flags().StringVar(&r.Machine, "on", "", "the `MACHINE`: cpu, gpu (inference and trainer share it), gpus (each has its "+
		"own) or slurm (default: gpu, without --from cpu)")
	cmd.Flags().StringVar(&r.Model, "model", "", "the `MODEL` to train: a name of the Hugging Face hub or a folder "+
		"(default: the source's)")
	cmd.Flags().StringVar(&r.Dir, "dir", "", "make the files in this `FOLDER` (default: the current one)")
	_ = cmd.MarkFlagFilename("from", "py", "sh", "yaml", "yml")
	_ = cmd.RegisterFlagCompletionFunc("on", cobra.FixedCompletions(draft.Machines, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) writeDraft(r draft.Request) error {
	fresh := r.Dir != "" && isEmpty(r.Dir)
	d, err := r.Write()
	if err != nil {
		return err
	}
	if fresh {
		a.trustNew(r.Dir)
	}
	s := a.style()
	fmt.Fprintf(a.out, "%s from %s:\n\n", s.Bold("recipe "+r.Name), printable.Text(d.About))
	for _, f := range d.Files {
		fmt.Fprintf(a.out, "  %s\n", printable.Text(f.Path))
	}
	if len(d.Left) > 0 {
		fmt.Fprintf(a.out, "\nNot carried over:\n\n")
		for _, l := range d.Left {
			fmt.Fprintf(a.out, "  %s\n", l.String())
		}
	}
	if note := r.OnCPU(interpreter.GPU()); note != "" {
		fmt.Fprintf(a.out, "\n%s\n", note)
	}
	fmt.Fprintf(a.out, "\nNext:\n\n")
	for _, line := range d.Next {
		fmt.Fprintf(a.out, "  %s\n", printable.Text(line))
	}
	return nil
}
