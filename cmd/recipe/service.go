package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

func newService(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Have systemd apply a recipe again after a reboot",
	}
	cmd.AddCommand(newServiceInstall(a), newServiceRemove(a))
	return cmd
}

func newServiceInstall(a *app) *cobra.Command {
	var (
		f       recipeFlags
		targets []string
	)
	cmd := &cobra.Command{
		Use:   "install [FILE]",
		Short: "Write a unit of systemd that applies a recipe when the machine starts",
		Long: `Write a unit of systemd, for this user, that applies a recipe when the machine starts: the run continues from
its newest checkpoint, and a run that is completed stays as it is. It needs no root. The unit has the variables and
settings of this command. Keys and other secrets go into the file that it names, NAME=VALUE a line.

The command prints what starts the unit; it starts nothing.

  recipe service install --var steps=5000 gsm8k.hcl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if runtime.GOOS != "linux" {
				return errors.New("systemd is on Linux only; here, have the system run recipe apply --auto-approve at its start")
			}
			s, err := a.open(cmd.Context(), &f, args, targets, false)
			if err != nil {
				return err
			}
			return a.installService(cmd.Context(), s, &f, targets)
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVar(&targets, "target", nil,
		"apply only the block at this `ADDRESS` and what it needs; repeatable")
	return cmd
}

func newServiceRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove [FILE]",
		Short: "Remove the unit of a recipe",
		Long:  "Remove the unit of systemd that recipe service install has written. Its run is not stopped.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, schema.Options{})
			if r.Name == "" {
				return diags
			}
			u, err := unitOf(r)
			if err != nil {
				return err
			}
			if err := u.ours(); err != nil {
				return err
			}
			if err := os.Remove(u.path); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("there is no unit %s: recipe service install writes it", u.path)
			} else if err != nil {
				return fmt.Errorf("remove the unit: %w", err)
			}
			_, err = fmt.Fprintf(a.out, "Removed %s.\n"+
				"systemd forgets it with: systemctl --user disable %s; systemctl --user daemon-reload\n", u.path, u.name)
			return err
		},
	}
}

// unit is the unit of a recipe.
type unit struct {
	name, path string
	secrets    string // file of NAME=VALUE lines
	recipe     string // path of the recipe file
}

func unitOf(r *schema.Recipe) (unit, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return unit{}, fmt.Errorf("find the folder of units: %w", err)
	}
	file, err := filepath.Abs(r.File)
	if err != nil {
		return unit{}, fmt.Errorf("find %s: %w", r.File, err)
	}
	name := "recipe-" + strings.Map(func(c rune) rune { // what a unit's name may have
		if c < 0x80 && (c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return c
		}
		return '_'
	}, r.Name)
	return unit{name: name + ".service", path: filepath.Join(config, "systemd", "user", name+".service"),
		secrets: filepath.Join(config, "recipe", name+".env"), recipe: file}, nil
}

// mark is the first line of a unit: which recipe it is of.
func (u unit) mark() string { return "# Written by recipe service install, of " + u.recipe }

// ours returns an error for a unit of the same name that is not of this recipe.
func (u unit) ours() error {
	text, err := os.ReadFile(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the unit: %w", err)
	}
	if first, _, _ := strings.Cut(string(text), "\n"); first != u.mark() {
		return &sdk.Error{Summary: fmt.Sprintf("%s is not of %s", u.path, u.recipe),
			Detail: "Its first line is: " + first,
			Remedy: "give the recipe another name (recipe { name = … }), or remove that unit"}
	}
	return nil
}

func (a *app) installService(ctx context.Context, s *session.Session, f *recipeFlags, targets []string) error {
	u, err := unitOf(s.Recipe)
	if err == nil {
		err = u.ours()
	}
	if err != nil {
		return err
	}
	text, err := u.text(s.Recipe, f, targets)
	if err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(u.path), filepath.Dir(u.secrets)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write the unit: %w", err)
		}
	}
	if err := outfile.Write(ctx, u.path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the unit: %w", err)
	}
	_, err = fmt.Fprintf(a.out, `Wrote %[1]s.

  systemctl --user daemon-reload
  systemctl --user enable --now %[2]s
  loginctl enable-linger

The second command starts it, now and with the machine; without the third it starts when you log in. After that
systemctl --user stop %[2]s drains the run, as recipe stop does, and recipe status shows it.
Keys that the recipe reads from its environment go into %[3]s,
NAME=VALUE a line, which only you may read (chmod 600).
`, u.path, u.name, u.secrets)
	return err
}

// text is the content of the unit.
func (u unit) text(r *schema.Recipe, f *recipeFlags, targets []string) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	words := []string{program, "apply", "--auto-approve"}
	for _, v := range f.vars {
		name, _, _ := strings.Cut(v, "=")
		for _, known := range r.Variables {
			if known.Name == strings.TrimSpace(name) && known.Sensitive {
				return "", &sdk.Error{
					Summary: fmt.Sprintf("the variable %s is sensitive, and a unit is no place for a secret", known.Name),
					Remedy:  fmt.Sprintf("leave it out here, and write RECIPE_VAR_%s=… into %s", known.Name, u.secrets)}
			}
		}
		words = append(words, "--var", v)
	}
	for _, file := range f.varFiles {
		words = append(words, "--var-file", file)
	}
	for _, s := range r.Settings {
		if s.Sensitive {
			return "", fmt.Errorf("the setting %s is sensitive, and a unit is no place for a secret: use a variable", s.At)
		}
		words = append(words, "--set", s.String())
	}
	for _, t := range targets {
		words = append(words, "--target", t)
	}
	words = append(words, u.recipe)
	for i, w := range words {
		if i > 0 {
			w = strings.ReplaceAll(w, "$", "$$")
		}
		if words[i], err = unitWord(w); err != nil {
			return "", err
		}
	}
	grace := 2 * time.Minute
	for _, b := range r.Blocks {
		if h := b.Meta.Health; h != nil {
			grace = max(grace, h.StopTimeout)
		}
		grace = max(grace, decode.DefaultHealth(b.Addr.Kind).StopTimeout)
	}
	directory, err := unitPath(here)
	if err != nil {
		return "", err
	}
	secrets, err := unitPath(u.secrets)
	if err != nil {
		return "", err
	}
	path, err := unitWord("PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`%s
# It applies the recipe when the machine starts, and again when the engine was killed: its run continues.
[Unit]
Description=recipe run %s
StartLimitIntervalSec=1h
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory=%s
Environment=%s
EnvironmentFile=-%s
ExecStart=%s
# SIGTERM drains the run, as recipe stop does: the exit code is then %d. Blocks of an engine that was killed are adopted
# by the next, so they do not end with it.
KillMode=process
TimeoutStopSec=%d
SuccessExitStatus=%d
# A recipe that has errors (%d), was denied (%d) or is not trusted (%d) is not tried again; a killed engine is.
Restart=on-abnormal
RestartSec=10

[Install]
WantedBy=default.target
`, u.mark(), strings.ReplaceAll(view.OneLine(r.Name), "%", "%%"), directory, path, secrets, strings.Join(words, " "),
		exitStopped, int((grace + time.Minute).Seconds()), exitStopped, exitFailed, exitDenied, exitUntrusted), nil
}

// unitWord quotes a word for a unit of systemd, where % is special. In a command $ is special, too: its caller doubles
// it.
func unitWord(s string) (string, error) {
	if i := strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }); i >= 0 {
		return "", fmt.Errorf("%q cannot be written into a unit, because of %q: put it into a variables file", s, s[i:i+1])
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`, nil
}

// unitPath writes a path as systemd reads one that is a whole value.
func unitPath(s string) (string, error) {
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", fmt.Errorf("the path %q cannot be written into a unit: rename the folder", s)
	}
	return strings.ReplaceAll(s, "%", "%%"), nil
}
