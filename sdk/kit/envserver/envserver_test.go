package envserver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// asServer is set where this program is the server of an environment, which listens at its last argument.
const asServer = "ENVSERVER_TEST_SERVES"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("unix", os.Args[len(os.Args)-1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			os.Exit(1)
		}
		if r.URL.Path == "/reset" {
			_, _ = io.WriteString(os.Stderr, "WARNING: Couldn't reach 'cases.jsonl' on the hub\nINFO: connection open\n")
		}
		_, _ = io.WriteString(w, "here")
	})))
}

// Another user of the machine cannot reach such a server: no port leads to it, and its folder is closed.
func TestAServerListensAtASocketOfThisUser(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Setup{Location: Location{Command: []string{os.Args[0], "{socket}"},
		StartTimeout: time.Minute}, Health: "/health", Log: func(string, string) {},
		Block: sdk.Block{Dir: t.TempDir(), RecipeDir: t.TempDir(), Environment: map[string]string{asServer: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(s.socket)
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 || s.port != 0 {
		t.Errorf("the folder of the socket is %v, %v, and the port %d", info, err, s.port)
	}
	client := &http.Client{Transport: s.Transport(&http.Transport{})}
	defer client.CloseIdleConnections()
	ask := func(path string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(q)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	if err := ask("/"); err != nil {
		t.Error(err)
	}
	if err := ask("/end"); err == nil {
		t.Error("the server has not ended")
	}
	until := time.Now().Add(time.Minute)
	for err = ask("/"); err != nil && time.Now().Before(until); err = ask("/") {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("the server was not started again at its socket: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the socket is still there: %v", err)
	}
}

// What the server writes says why a call failed, of which only the end of a connection is seen.
func TestAFailureHasTheWordsOfTheServer(t *testing.T) {
	t.Parallel()
	var told []string
	s, err := Open(t.Context(), Setup{Location: Location{Command: []string{os.Args[0], "{socket}"},
		StartTimeout: time.Minute}, Health: "/health",
		Log:   func(level, message string) { told = append(told, level+": "+message) },
		Block: sdk.Block{Dir: t.TempDir(), RecipeDir: t.TempDir(), Environment: map[string]string{asServer: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: s.Transport(&http.Transport{})}
	defer client.CloseIdleConnections()
	for range 3 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/reset", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if failed := s.Failed(errors.New("closed")); failed.Error() != "infra_failed: closed" {
			t.Error(failed)
		}
	}
	if want := "warn: the environment's server writes: WARNING: Couldn't reach 'cases.jsonl' on the hub"; len(told) != 1 ||
		told[0] != want {
		t.Errorf("logged %q, want %q once", told, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPlaceToListenIsOne(t *testing.T) {
	t.Parallel()
	found := Location{Command: []string{"a", "{port}", "{socket}"}}.Problems()
	if len(found) != 1 || !strings.Contains(found[0].Summary, "{socket} or {port}") {
		t.Errorf("got %v", found)
	}
	found = Location{Command: []string{"a", "{port}"}}.Problems()
	if len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Detail, "Write {socket}") {
		t.Errorf("a port that every user reaches: %v", found)
	}
	if found = (Location{Command: []string{"a", "{socket}"}}).Problems(); len(found) > 0 {
		t.Errorf("a socket: %v", found)
	}
}
