package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// zshCompletes prints what an interactive zsh makes of each argument when the tab key is pressed after it. Ctrl-X is a
// widget that writes the line to a file; the hook of zle writes the first one when the shell reads keys.
const zshCompletes = `
zmodload zsh/zpty || exit 3
zpty z zsh -f -i
zpty -w z 'fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D
show() { print -r -- "$BUFFER" >> lines; BUFFER= }; zle -N show; bindkey "^X" show
zle-line-init() { print >> lines }; zle -N zle-line-init'
wanted() {
  for i in {1..1200}; do
    zpty -r -t z out
    [[ -f lines && $(wc -l < lines) -ge $1 ]] && return
    sleep 0.1
  done
  print -u2 "zsh does not answer: $(cat lines)"; exit 1
}
wanted 1
n=1
for line; do
  zpty -w -n z "$line"$'\t\x18'
  wanted $((++n))
done
zpty -d z
tail -n +2 lines
`

// bashCompletes prints what bash offers for each argument.
const bashCompletes = `
source /usr/share/bash-completion/bash_completion || exit 3
source functions/recipe
for line; do
  read -ra COMP_WORDS <<< "$line"
  COMP_LINE=$line COMP_POINT=${#line} COMP_CWORD=$((${#COMP_WORDS[@]}-1)) COMPREPLY=()
  __start_recipe 2> /dev/null
  COMP_WORDS[COMP_CWORD]=${COMPREPLY[*]}
  echo "${COMP_WORDS[*]}"
done
`

// A person presses the tab key in a real shell.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	typed := [][2]string{
		{"recipe val", "recipe validate"},
		{"recipe plan --target trai", "recipe plan --target trainer.tiny.policy"},
		{"recipe plugin docs environment arith", "recipe plugin docs environment arithmetic"},
		{"recipe plan --set trainer.tiny.policy.lear", "recipe plan --set trainer.tiny.policy.learning_rate="},
		{"recipe plan quickstart.hcl --var st", "recipe plan quickstart.hcl --var steps="},
	}
	var lines, want []string
	for _, pair := range typed {
		lines, want = append(lines, pair[0]), append(want, pair[1])
	}
	for shell, c := range map[string]struct{ file, script, needs string }{
		"zsh":  {"_recipe", zshCompletes, ""},
		"bash": {"recipe", bashCompletes, "/usr/share/bash-completion/bash_completion"},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed: its completion is not tried", shell)
			}
			if c.needs != "" {
				if _, err := os.Stat(c.needs); err != nil {
					t.Skipf("%s is not installed, without which the script for %s does nothing", c.needs, shell)
				}
			}
			w := newWorkshop(t)
			script, err := w.command("completion", shell).Output()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(w.dir, "functions"), 0o700); err != nil {
				t.Fatal(err)
			}
			w.write(filepath.Join("functions", c.file), string(script))
			w.write("complete", c.script)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append([]string{"complete"}, lines...)...)
			cmd.Dir, cmd.Env = w.dir, w.command("version").Env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got []string
			for line := range strings.Lines(string(out)) {
				got = append(got, strings.TrimSpace(line))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", out, strings.Join(want, "\n"))
			}
		})
	}
}
