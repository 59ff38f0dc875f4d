package main

import (
	"context"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// knownAgent is the agent of a name, for findings about blocks.
func knownAgent(name string) (doctor.Agent, bool) {
	for _, k := range knownAgents() {
		if k.Name == name {
			return k, true
		}
	}
	return nil, false
}

func newEnvAgents(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "agents",
		Short: `List the agents that environment "agent" knows by name, and which of them this machine has`,
		Long: `List the agents that environment "agent" knows by name (agent = "NAME"): the API in which each speaks to the
model, its version on this machine and the one that recipe was tried with, how many tokens its first prompt has, about,
and how it is installed. Libraries of Python are looked for in the Python in PATH, or in the active virtual environment;
a block has its own. Programs that are found are run to ask for their version; nothing is installed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := agentsHere(cmd.Context(), a.machine("."))
			if asJSON {
				return view.AgentsJSON(a.out, list)
			}
			return view.Agents(a.out, a.style(), list)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// agentsHere looks for all known agents on this machine.
func agentsHere(ctx context.Context, m doctor.Machine) []view.Agent {
	all := knownAgents()
	python, err := interpreter.Find(sdk.Runtime{}, sdk.Packages{}, ".", os.Getenv)
	if err != nil {
		python = ""
	}
	list := make([]view.Agent, len(all))
	var wait sync.WaitGroup
	for i, k := range all {
		wait.Go(func() {
			list[i] = view.Agent{Name: k.Name, Dialect: k.Dialect, From: k.From, Tried: k.Tried, Before: k.Before,
				Prompt:  k.Prompt,
				BaseURL: k.BaseURL, Key: k.Key, Install: k.Install}
			program, err := k.Find(m.LookPath, python)
			if err == nil {
				list[i].Version, err = k.Version(ctx, program, interpreter.Asking(os.Environ()))
			}
			if err == nil {
				list[i].Program, list[i].Warning = program, k.Warning(list[i].Version)
			} else {
				list[i].Warning = err.Error()
			}
		})
	}
	wait.Wait()
	return list
}
