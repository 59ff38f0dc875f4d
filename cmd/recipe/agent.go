package main

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	engineagent "github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// newAgentCommand is the command that an executor runs on the machine of a job.
func newAgentCommand(a *app) *cobra.Command {
	var bootstrap, scratch string
	cmd := &cobra.Command{
		Use:    "agent --bootstrap FILE",
		Short:  "Run a block on this machine for an engine elsewhere; executors start it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Schedulers repeat SIGTERM: the agent goes on ending what it has started.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			node, err := strconv.Atoi(cmp.Or(os.Getenv(executor.NodeVariable), "0"))
			if err != nil {
				return fmt.Errorf("%s, the number of this machine, is no number: %w", executor.NodeVariable, err)
			}
			if bootstrap == "-" {
				return engineagent.RunJoined(ctx, cmd.InOrStdin(), node, scratch, a.err)
			}
			b, err := engineagent.ReadBootstrap(bootstrap, node)
			if err != nil {
				return err
			}
			return engineagent.Run(ctx, b, a.err)
		},
	}
	cmd.Flags().StringVar(&bootstrap, "bootstrap", "", "the `FILE` that the engine has written; - to ask the engine for it")
	cmd.Flags().StringVar(&scratch, "scratch", "", "the `FOLDER` for staged files, with --bootstrap -")
	if err := cmd.MarkFlagRequired("bootstrap"); err != nil {
		panic(err)
	}
	cmd.AddCommand(newAgentStartCommand(a))
	return cmd
}

// newAgentStartCommand is the command by which a plugin has programs started on further machines of its job.
func newAgentStartCommand(a *app) *cobra.Command {
	var node int
	cmd := &cobra.Command{
		Use:   "start --node N -- PROGRAM [ARGUMENT…]",
		Short: "Run a program on another machine of the job that this process belongs to",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, argv []string) error {
			status, err := engineagent.StartOn(node, argv, a.out)
			if err == nil && status != 0 {
				err = exitError(status)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&node, "node", 0, "number of the machine, from 1")
	return cmd
}
