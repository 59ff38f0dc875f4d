package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	token string
	rest  chan struct{} // closed when everything that it prints has been read
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
	address := regexp.MustCompile(`The dashboard is at (http://127\.0\.0\.1:\d+)/\?token=(\w+) `)
	var said strings.Builder
	for lines := bufio.NewReader(out); d.url == ""; {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if m := address.FindStringSubmatch(line); m != nil {
			d.url, d.token = m[1], m[2]
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
	if answer, err := http.Get(d.url + path); err != nil || answer.StatusCode != http.StatusUnauthorized {
		d.t.Fatalf("without the token %s is answered with %v, %v", path, answer, err)
	} else {
		_ = answer.Body.Close()
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
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

// A dashboard needs a token; beyond loopback it needs TLS, too, or that TLS is waived.
func TestWhereADashboardNeedsTLS(t *testing.T) {
	t.Parallel()
	for host, beyond := range map[string]bool{
		"127.0.0.1": false, "localhost": false, "::1": false, "0.0.0.0": true, "192.0.2.7": true, "gpu1": true,
	} {
		var o ui.Options
		query, err := (&uiFlags{host: host}).secure(&o)
		if refused := err != nil && strings.Contains(err.Error(), "reachable from other machines"); refused != beyond {
			t.Errorf("%s without TLS: %v", host, err)
		}
		if !beyond {
			if len(o.Token) < 20 || query != "?token="+o.Token {
				t.Errorf("%s: %q, %v", host, query, err)
			}
			var open ui.Options
			if query, err := (&uiFlags{host: host, noToken: true}).secure(&open); err != nil || query != "" || open.Token != "" {
				t.Errorf("%s with --no-token: %q, %v", host, query, err)
			}
			continue
		}
		if _, err := (&uiFlags{host: host, insecure: true, noToken: true}).secure(&ui.Options{}); err == nil {
			t.Errorf("%s with --no-token was accepted", host)
		}
		query, err = (&uiFlags{host: host, insecure: true}).secure(&o)
		if err != nil || len(o.Token) < 20 || query != "?token="+o.Token {
			t.Errorf("%s with --insecure: %q, %v", host, query, err)
		}
	}
}

func TestTokenFileOfTheDashboard(t *testing.T) {
	t.Parallel()
	f := &uiFlags{host: "127.0.0.1", tokenFile: filepath.Join(t.TempDir(), "token")}
	first, err := f.token()
	if err != nil || len(first) < 20 {
		t.Fatalf("%q, %v", first, err)
	}
	if info, err := os.Stat(f.tokenFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if again, err := f.token(); err != nil || again != first {
		t.Errorf("the second time: %q, %v; want %q", again, err, first)
	}
	for name, content := range map[string]string{"empty": "", "short": "abc", "two lines": first + "\n" + first,
		"not for a URL": "????????????????????????"} {
		if err := os.WriteFile(f.tokenFile, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if token, err := f.token(); err == nil {
			t.Errorf("%s: %q was accepted", name, token)
		}
	}
}

// The address contains a token, so no argument of a program may have it.
func TestBrowserGetsAFile(t *testing.T) {
	dir := t.TempDir()
	opener := map[string]string{"darwin": "open"}[runtime.GOOS]
	if opener == "" {
		opener = "xdg-open"
	}
	log := filepath.Join(dir, "log")
	script := "#!/bin/sh\necho \"$@\" >" + log + ".new\ncat \"$1\" >>" + log + ".new\nmv " + log + ".new " + log + "\n"
	if err := os.WriteFile(filepath.Join(dir, opener), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	forget, err := openBrowser("http://127.0.0.1:1/?token=secret&x")
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	var said []byte
	for deadline := time.Now().Add(time.Minute); len(said) == 0 &&
		time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		said, _ = os.ReadFile(log)
	}
	arguments, page, _ := strings.Cut(string(said), "\n")
	if strings.Contains(arguments, "secret") || !strings.Contains(page, "url=http://127.0.0.1:1/?token=secret&amp;x") {
		t.Errorf("arguments %q, file %q", arguments, page)
	}
}
