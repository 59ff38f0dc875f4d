package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/recipe-rl/recipe/sdk"
)

// errDeclined is returned when the user does not confirm.
var errDeclined = errors.New("not approved; nothing was changed")

// approve asks a person at a terminal. Without one, and without the flag that approves beforehand, nothing is done;
// check describes how to see what would be.
func (a *app) approve(ctx context.Context, beforehand bool, question, check string) error {
	if beforehand {
		return nil
	}
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &sdk.Error{
			Summary: "approval needs a terminal; nothing was changed",
			Remedy:  check + ", then run the command again with --auto-approve",
		}
	}
	fmt.Fprintf(a.out, "\n%s Type \"yes\" to approve: ", a.style().Bold(question))
	answer, err := a.readAnswer(ctx.Done())
	if err != nil {
		fmt.Fprintln(a.out)
		return errDeclined
	}
	if answer != "yes" {
		return errDeclined
	}
	fmt.Fprintln(a.out)
	return nil
}

// readAnswer reads a line, or gives up when over is closed: on Ctrl-C, which a read from a terminal would not notice.
func (a *app) readAnswer(over <-chan struct{}) (string, error) {
	type line struct {
		text string
		err  error
	}
	a.mu.Lock()
	if a.lines == nil { // one for all questions: it may have read beyond the first line
		a.lines = bufio.NewReader(a.in)
	}
	lines := a.lines
	a.mu.Unlock()
	read := make(chan line, 1)
	go func() {
		text, err := lines.ReadString('\n')
		read <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-over:
		return "", context.Canceled
	}
}
