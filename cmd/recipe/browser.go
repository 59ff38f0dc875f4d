package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/recipe-rl/recipe/internal/temporary"
)

var errNoDesktop = errors.New("there is no desktop")

// openBrowser opens an address in the browser of a desktop. Arguments of processes can be read by all users, and the
// address contains a token, so the browser gets a file of this user that leads there. forget removes the file.
func openBrowser(address string) (forget func(), err error) {
	opener := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		opener = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return nil, errNoDesktop
	}
	program, err := exec.LookPath(opener)
	if err != nil {
		return nil, errNoDesktop
	}
	dir, remove, err := temporary.Dir("", "recipe-ui-")
	if err != nil {
		return nil, err
	}
	forget = func() { _ = remove() }
	page := filepath.Join(dir, "open.html")
	if err = newFile(page, redirect(address)); err == nil {
		cmd := exec.Command(program, page)
		if err = cmd.Start(); err == nil {
			go func() { _ = cmd.Wait() }()
			return forget, nil
		}
	}
	forget()
	return nil, err
}

// newFile writes a file of this user only at a path where there is none.
func newFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func redirect(address string) []byte {
	at := html.EscapeString(address)
	return fmt.Appendf(nil, "<!doctype html><meta http-equiv=refresh content=\"0;url=%s\"><a href=\"%s\">dashboard</a>\n",
		at, at)
}
