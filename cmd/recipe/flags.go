package main

import "github.com/spf13/cobra"

// addJSON gives a command the --json flag.
func addJSON(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "write JSON instead of text for people")
}
