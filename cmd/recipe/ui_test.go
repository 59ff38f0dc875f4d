package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/ui"
)

// The dashboard is served beside an apply and, of the same run, by itself afterwards.
func TestTheDashboardOfARun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	beside := served(t, w, "apply", "-y", "--ui", "--var", "steps=100000", "quickstart.hcl")
	beside.shows("running")
	beside.end()
	after := served(t, w, "ui")
	after.shows("stopped")
	after.end()
}

// uiProgram is one that serves a dashboard.
type uiProgram struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	rest chan struct{} // closed when everything that it prints has been read
}

// served starts a program and waits until it prints the address of its dashboard.
func served(t *testing.T, w *workshop, args ...string) *uiProgram {
	t.Helper()
	d := &uiProgram{t: t, cmd: w.command(args...), rest: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout, d.cmd.Stderr = in, in
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	address := regexp.MustCompile(`The dashboard is at (http://127\.0\.0\.1:\d+)/ `)
	var said strings.Builder
	for lines := bufio.NewReader(out); d.url == ""; {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if m := address.FindStringSubmatch(line); m != nil {
			d.url = m[1]
			go func() {
				_, _ = io.Copy(io.Discard, lines)
				_ = out.Close()
				close(d.rest)
			}()
		} else if err != nil {
			t.Fatalf("recipe %s ended without an address:\n%s", strings.Join(args, " "), said.String())
		}
	}
	return d
}

// shows checks that the page is there, and waits until it says that the quickstart has a status.
func (d *uiProgram) shows(status string) {
	d.t.Helper()
	if page := d.get("/"); !strings.Contains(page, "<script") {
		d.t.Errorf("the page is %q", page)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var run struct{ Status string }
		text := d.get("/api/runs/quickstart")
		if err := json.Unmarshal([]byte(text), &run); err != nil {
			d.t.Fatalf("the run is %s: %v", text, err)
		}
		if run.Status == status {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("timed out after 2 minutes waiting for the status %s; the run is %s", status, text)
		}
	}
}

func (d *uiProgram) get(path string) string {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK {
		d.t.Fatalf("%s is answered with %d %s, %v", path, answer.StatusCode, text, err)
	}
	return string(text)
}

// end interrupts the program, which serves no longer when it has ended.
func (d *uiProgram) end() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		d.t.Fatal(err)
	}
	<-d.rest
	_ = d.cmd.Wait() // a run that was interrupted has a status of its own
	if answer, err := http.Get(d.url); err == nil {
		_ = answer.Body.Close()
		d.t.Error("the dashboard is served after its program has ended")
	}
}

// Beyond loopback a dashboard needs TLS, or that it is waived, and a token.
func TestWhereADashboardNeedsATokenAndTLS(t *testing.T) {
	t.Parallel()
	for host, beyond := range map[string]bool{
		"127.0.0.1": false, "localhost": false, "::1": false, "0.0.0.0": true, "192.0.2.7": true, "gpu1": true,
	} {
		var o ui.Options
		query, err := (&uiFlags{host: host}).secure(&o)
		if refused := err != nil && strings.Contains(err.Error(), "reachable from other machines"); refused != beyond {
			t.Errorf("%s without TLS: %v", host, err)
		}
		if !beyond && (query != "" || o.Token != "") {
			t.Errorf("%s has a token", host)
		}
		if !beyond {
			continue
		}
		query, err = (&uiFlags{host: host, insecure: true}).secure(&o)
		if err != nil || len(o.Token) < 20 || query != "?token="+o.Token {
			t.Errorf("%s with --insecure: %q, %v", host, query, err)
		}
	}
}
