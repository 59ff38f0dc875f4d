package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// editors are programs that take the settings of docs/editor.md and a script. Each prints the diagnostics of train.hcl
// and the line and column of the definition of what is at line 7, column 24.
var editors = map[string]struct {
	language string // of the settings in the page
	prelude  string // before the settings
	script   string // after them
	command  []string
}{
	"vim": {"vim", "set nocompatible\n", `
packadd ale
filetype plugin indent on
redir! > out
silent edit train.hcl
ALELint
for i in range(300)
  if len(ale#engine#GetLoclist(bufnr('')))
    break
  endif
  sleep 100m
endfor
for d in ale#engine#GetLoclist(bufnr(''))
  echo 'diagnostic' d.text
endfor
call cursor(7, 24)
ALEGoToDefinition
for i in range(300)
  if line('.') != 7
    break
  endif
  sleep 100m
endfor
echo 'definition' line('.') col('.')
redir END
qa!
`, []string{"vim", "-es", "-N", "-u", "NONE", "-i", "NONE", "-S", "script"}},
	"emacs": {"elisp", "(require 'package)\n(package-initialize)\n(require 'eglot)\n", `
(setq eglot-sync-connect t)
(find-file "train.hcl")
(unless (eglot-managed-p) (apply #'eglot--connect (eglot--guess-contact)))
(flymake-mode 1)
(flymake-start)
(let ((n 0))
  (while (and (< n 300) (null (flymake-diagnostics)))
    (accept-process-output nil 0.1)
    (setq n (1+ n))))
(dolist (d (flymake-diagnostics)) (princ (format "diagnostic %s\n" (flymake-diagnostic-text d))))
(goto-char (point-min))
(forward-line 6)
(forward-char 23)
(dolist (x (xref-backend-definitions 'eglot "LSP identifier at point."))
  (let ((l (xref-item-location x)))
    (princ (format "definition %d %d\n" (xref-file-location-line l) (1+ (xref-file-location-column l))))))
(eglot-shutdown-all)
`, []string{"emacs", "--batch", "--load", "script"}},
}

// TestEditors runs the settings of docs/editor.md in the editors that are installed here: diagnostics arrive, and a
// definition is found.
//
//docs:editor.md Neovim
func TestEditors(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "editor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range editors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := ""
			for _, m := range regexp.MustCompile("(?s)```"+e.language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
				settings += m[1]
			}
			if settings == "" {
				t.Fatalf("docs/editor.md has no settings in %s", e.language)
			}
			needsEditor(t, name)
			dir := t.TempDir()
			for file, text := range map[string]string{"script": e.prelude + settings + e.script, "train.hcl": `variable "steps" {
  default = 3
}

trainer "tiny" "policy" {
  environments = []
  stepz        = var.steps
}
`} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, e.command[0], e.command[1:]...)
			cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "HOME="+t.TempDir()), time.Second
			printed, err := cmd.CombinedOutput()
			written, _ := os.ReadFile(filepath.Join(dir, "out")) // of vim, which has no standard output
			out := string(printed) + string(written)
			if err != nil || !strings.Contains(out, `There is no attribute "stepz"`) ||
				!strings.Contains(out, "definition 1 11") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// needsEditor skips a test where an editor, or its client of the protocol, is not installed.
func needsEditor(t *testing.T, name string) {
	t.Helper()
	check := map[string][]string{
		"vim": {"vim", "-es", "-N", "-u", "NONE", "-i", "NONE", "-c", "packadd ale", "-c",
			"if !exists('g:loaded_ale') | cq | endif", "-c", "qa!"},
		"emacs": {"emacs", "--batch", "--eval", "(progn (require 'package) (package-initialize) (require 'eglot))"},
	}[name]
	if out, err := exec.CommandContext(t.Context(), check[0], check[1:]...).CombinedOutput(); err != nil {
		t.Skipf("%s is not installed with its client: %v %s", name, err, out)
	}
}
