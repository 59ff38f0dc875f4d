// Package nodes tells a plugin on which machines its block runs, and starts programs on them. A plugin process runs on
// the first machine of its job; the agents of the job carry its programs to the others.
package nodes

import (
	"os"
	"strconv"
	"strings"
)

// Variables that an agent sets for a plugin process, all but the first when the job has several machines, and for the
// programs that it starts on the others.
const (
	// AddressKey holds the address at which other machines of the run reach this one. A job on one machine has it, too.
	AddressKey = "RECIPE_NODE_ADDRESS"
	// AddressesKey holds the addresses of the machines, separated by commas, in their order.
	AddressesKey = "RECIPE_NODE_ADDRESSES"
	// ProgramKey is the recipe program, which has others started on further machines.
	ProgramKey = "RECIPE_NODE_PROGRAM"
	// SocketKey is the socket of the agent, for that program.
	SocketKey = "RECIPE_NODE_SOCKET"
)

// Address is where other machines of the run reach this one; empty for a block without a job.
func Address() string { return os.Getenv(AddressKey) }

// Addresses are those of the block's machines, at which they reach each other; nil when it has one only.
func Addresses() []string {
	text := os.Getenv(AddressesKey)
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Command is a command for this machine that runs argv on machine n, from 0, with the environment and in the folder in
// which it is started itself. It prints what the program prints, passes SIGTERM and SIGINT on to it, and ends with its
// exit status. The program ends with everything that it has started when the command is killed.
func Command(n int, argv []string) []string {
	if n == 0 {
		return argv
	}
	return append([]string{os.Getenv(ProgramKey), "agent", "start", "--node", strconv.Itoa(n), "--"}, argv...)
}
