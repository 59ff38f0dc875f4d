package session

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

func runDir(t *testing.T, name string) state.Dir {
	t.Helper()
	d := state.DirOf(t.TempDir(), name)
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	return d
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// answering listens as an engine does, which answers whatever it is asked.
func answering(t *testing.T, path string) net.Listener {
	t.Helper()
	l := listen(t, path)
	server := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l
}

func TestTheSocketOfALongPathIsPrivate(t *testing.T) {
	d := runDir(t, strings.Repeat("x", 120))
	path, err := listenPath(d)
	if err != nil {
		t.Fatal(err)
	}
	if len(path) > socketLimit {
		t.Errorf("%s has %d bytes; want at most %d", path, len(path), socketLimit)
	}
	info, err := os.Lstat(filepath.Dir(path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v; want mode 0700", info, err)
	}
	l := answering(t, path)
	c, err := Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	_ = l.Close()
	if _, err := Dial(t.Context(), d); !errors.Is(err, ErrNoEngine) {
		t.Errorf("%v; want ErrNoEngine", err)
	}
}

// A project with a long path is moved while its engine works, to another long path or to a short one.
func TestTheSocketOfALongPathIsFoundAfterAMove(t *testing.T) {
	old := runDir(t, strings.Repeat("x", 120))
	path, err := listenPath(old)
	if err != nil {
		t.Fatal(err)
	}
	answering(t, path)
	at := string(old)
	for _, name := range []string{strings.Repeat("y", 120), "short"} {
		moved := filepath.Join(filepath.Dir(string(old)), name)
		if err := os.Rename(at, moved); err != nil {
			t.Fatal(err)
		}
		at = moved
		c, err := Dial(t.Context(), state.Dir(moved))
		if err != nil {
			t.Fatalf("moved to %s: %v", moved, err)
		}
		c.Close()
	}
}

// Another user has made the folder, or a link, where sockets usually are in the temporary directory.
//
//docs:survival.md another user's process listens at the path of the engine's socket
func TestAFolderThatOthersMadeIsNotUsed(t *testing.T) {
	for name, squat := range map[string]func(path, elsewhere string) error{
		"a link": func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"a folder of another user": func(path, elsewhere string) error {
			if os.Geteuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(os.Mkdir(path, 0o777), os.Chown(path, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, tmp, elsewhere := runDir(t, strings.Repeat("x", 120)), t.TempDir(), t.TempDir()
			_, socket, err := inRunDirectory(d)
			if err != nil {
				t.Fatal(err)
			}
			usual, err := listenPath(d)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", tmp)
			squatted := filepath.Join(tmp, filepath.Base(filepath.Dir(usual)))
			if err := squat(squatted, elsewhere); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("only root can make a folder of another user")
			} else if err != nil {
				t.Fatal(err)
			}
			if path, err := listenPath(d); err == nil && strings.HasPrefix(path, tmp) {
				t.Errorf("the engine would listen at %s", path)
			}
			if l, err := net.Listen("unix", filepath.Join(squatted, socket)); err == nil {
				// may be too long a path; then nobody listens
				defer func() { _ = l.Close() }()
			}
			if c, err := Dial(t.Context(), d); err == nil {
				c.Close()
				t.Error("it was taken for the engine")
			}
			t.Setenv("XDG_RUNTIME_DIR", "") // then there is no folder in which an engine could listen
			if _, err := Dial(t.Context(), d); !errors.Is(err, ErrNoEngine) {
				t.Errorf("without any folder: %v; want ErrNoEngine", err)
			}
		})
	}
}

// Only the variables that the recipe names are sent over the socket.
func TestOnlyWhatTheRecipeReadsIsSent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.hcl")
	recipe := `
variable "declared" {
  type    = string
  default = ""
}
output "x" {
  value     = env("NAMED")
  sensitive = true
}
`
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"NAMED=wanted", "RECIPE_VAR_declared=given", "RECIPE_VAR_other=hidden-1",
		"AWS_SECRET_ACCESS_KEY=hidden-2", "HOME=/hidden-3"}
	s, _, diags := Open(Request{File: file, Environ: environ}, nil, nil, nil)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if err := s.Dir.Make(); err != nil {
		t.Fatal(err)
	}
	path, err := listenPath(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); r.URL.Path != "/v1/engine" {
				got <- string(body)
			}
			_, _ = w.Write([]byte("{}"))
		})}
	l := listen(t, path)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-done }()
	if _, err := s.Plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := <-got
	if strings.Contains(body, "hidden") || !strings.Contains(body, "NAMED=wanted") ||
		!strings.Contains(body, "RECIPE_VAR_declared=given") {
		t.Errorf("sent: %s", body)
	}
	handover, err := json.Marshal(Handover{Request: s.Request})
	if err != nil || strings.Contains(string(handover), "hidden") {
		t.Errorf("handed to a detached engine: %s, %v", handover, err)
	}
}
