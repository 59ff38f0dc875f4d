package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/engine/alert"
)

// TestAlertsOfARun has a run tell a receiver on loopback, which fails at first, and a command. A receiver that never
// answers costs a warning and not the run, and the address of no receiver is found anywhere.
//
//docs:alerts.md Alerts
func TestAlertsOfARun(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []alert.Message
	calls := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		var m alert.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		got = append(got, m)
	}))
	t.Cleanup(receiver.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)

	dir := t.TempDir()
	recipe := strings.ReplaceAll(agentRecipe, "1000000", "3") + `
alert "learns" {
  block   = "trainer.tiny.policy"
  metric  = "reward"
  above   = -1
  webhook = "${env("RECEIVER")}/planted-path"
}
alert "silent" {
  metric  = "reward"
  above   = -1
  webhook = env("SILENT")
  timeout = "200ms"
}
alert "never" {
  metric  = "reward"
  above   = 1000
  webhook = env("RECEIVER")
}
alert "over" {
  state   = "run_ended"
  command = ["sh", "-c", "cat > over.json"]
}
`
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command("recipe", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RECEIVER="+receiver.URL, "SILENT="+silent.URL+"/planted-silent")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("recipe %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	said := run("apply", "-y")
	if !strings.Contains(said, "alert learns: reward") {
		t.Errorf("apply does not show the alert:\n%s", said)
	}
	said += run("logs", "--json") + run("logs", "--grep", "alert over: the run is completed")

	mu.Lock()
	defer mu.Unlock()
	if len(got) != 1 || got[0].Alert != "learns" || got[0].Address != "trainer.tiny.policy" || got[0].Step == 0 ||
		!strings.Contains(got[0].Text, "agent: learns: reward of trainer.tiny.policy is") {
		t.Errorf("the receiver got %+v", got)
	}
	var over alert.Message
	text, err := os.ReadFile(filepath.Join(dir, "over.json"))
	if err != nil || json.Unmarshal(text, &over) != nil || over.Message != "the run is completed" {
		t.Errorf("the command got %s, %v", text, err)
	}
	for _, want := range []string{`"type":"alert"`, `"name":"over"`,
		"alert silent: could not notify the webhook after 3 attempts"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log does not hold %q", want)
		}
	}
	if strings.Contains(said, `"name":"never"`) {
		t.Error("an alert whose condition never held has fired")
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Base(path) != "agent.hcl" {
			text, err := os.ReadFile(path)
			if err == nil {
				said += string(text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"planted-path", "planted-silent"} {
		if strings.Contains(said, secret) {
			t.Errorf("%s is in the output or a file of the run", secret)
		}
	}
}
