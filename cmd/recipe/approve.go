package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/recipe-rl/recipe/sdk"
)

// errDeclined is how a command ends whose question was answered with anything but yes.
var errDeclined = errors.New("not approved, nothing was changed")

// approve asks a person at a terminal. Without one, and without the flag that approves beforehand, nothing is done.
func (a *app) approve(beforehand bool, question string) error {
	if beforehand {
		return nil
	}
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &sdk.Error{
			Summary: "there is no terminal to ask at, so nothing was changed",
			Remedy:  "look at the plan with recipe plan, then run the command again with --auto-approve",
		}
	}
	fmt.Fprintf(a.out, "\n%s Only \"yes\" is taken as yes: ", a.style().Bold(question))
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.out)
		return errDeclined
	}
	if strings.TrimSpace(answer) != "yes" {
		return errDeclined
	}
	fmt.Fprintln(a.out)
	return nil
}
