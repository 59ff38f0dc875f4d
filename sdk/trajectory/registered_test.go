package trajectory_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestTheNextLifeSaysGoodbyeForTheLast(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var left []int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			EnvID int `json:"env_id"`
		}
		if !strings.HasSuffix(r.URL.Path, "/disconnect-env") || json.NewDecoder(r.Body).Decode(&body) != nil {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		mu.Lock()
		left = append(left, body.EnvID)
		mu.Unlock()
		_, _ = w.Write([]byte(`{"status":"success"}`))
	}))
	t.Cleanup(server.Close)
	client := func(path string) *trajectory.Client {
		c, err := trajectory.New(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	file := filepath.Join(t.TempDir(), "registered.json")
	api, other := client("/sesame"), client("/another-run")

	leave := func() { (&trajectory.Registered{File: file}).Leave(t.Context(), api) } // each time as a new life
	keep := func(c *trajectory.Client, id int) {
		if err := (&trajectory.Registered{File: file}).Keep(c, id); err != nil {
			t.Fatal(err)
		}
	}
	leave() // of the first life
	keep(api, 3)
	if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "sesame") {
		t.Errorf("the file holds %s, %v: want no token", data, err)
	}
	leave()
	leave() // it is forgotten
	keep(other, 4)
	leave() // another API's id may be somebody else's here
	keep(api, 5)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	leave()
	lost := trajectory.Registered{File: filepath.Join(file, "nowhere")}
	if err := lost.Keep(api, 6); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a file that cannot be written: %v", err)
	}
	lost.Leave(t.Context(), api) // this life knows without the file
	mu.Lock()
	defer mu.Unlock()
	if want := []int{3, 6}; !slices.Equal(left, want) {
		t.Errorf("said goodbye for %v, want %v", left, want)
	}
}
