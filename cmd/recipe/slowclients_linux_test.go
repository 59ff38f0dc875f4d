package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Clients that say nothing, or one byte after the other, take neither the places nor the open files of a run's servers:
// others are answered meanwhile, and training goes on.
func TestSlowClientsOfARun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.files = 256
	d := served(t, w, "apply", "-y", "--ui", "--var", "steps=1000000", "quickstart.hcl")
	processes := w.awaitProcesses(5, nil)
	eventually(t, "the trainer trains", func() bool { return w.trained() > 0 })
	store := addr.Block{Kind: kind.Trajectories, Plugin: "builtin", Name: "default"}
	policy := addr.Block{Kind: kind.Inference, Plugin: "tiny", Name: "policy"}
	for _, server := range []struct {
		name, address, path string
		pid                 int
	}{
		{name: "run-api", address: w.record().Blocks[store].Listen, path: "/", pid: processes[store.String()]},
		{name: "gateway", address: w.record().Blocks[policy].Listen, path: "/health", pid: processes[policy.String()]},
		{name: "dashboard", address: strings.TrimPrefix(d.url, "http://"), path: "/", pid: d.cmd.Process.Pid},
	} {
		t.Run(server.name, func(t *testing.T) { slowly(t, server.address, server.path, server.pid, w.files) })
	}
	step := w.trained()
	eventually(t, "training goes on", func() bool { return w.trained() > step+5 })
	if now := w.awaitProcesses(5, nil); !maps.Equal(now, processes) {
		t.Errorf("blocks were restarted: the processes are %v, were %v", now, processes)
	}
	d.end()
}

// slowly opens more connections to a server than its process may have files, and asks it something.
func slowly(t *testing.T, address, path string, pid, files int) {
	t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	sends := []string{"", "GET / HTTP/1.1\r\nX: ", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"}
	for n := range 6 * files {
		c, err := net.DialTimeout("tcp", address, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, sends[n%len(sends)])
		if n%len(sends) == 0 {
			continue
		}
		go func() {
			for { // a byte a second, for as long as the server takes it
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
			}
		}()
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatalf("no answer beside slow clients: %v", err)
	}
	_ = r.Body.Close() // that there is an answer counts: the dashboard's is 401
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(open) > files*7/8 {
		t.Errorf("%d of %d files are open beside slow clients", len(open), files)
	}
}
