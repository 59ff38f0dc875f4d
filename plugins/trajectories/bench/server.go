package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a trajectory API under measurement, running as a process of its own.
type server struct {
	name string
	url  string
	cmd  *exec.Cmd
	http *http.Client
}

// start runs a command with --port and waits until it answers.
func start(ctx context.Context, name string, command []string) (*server, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	args := append(command[1:len(command):len(command)], "--port", strconv.Itoa(port))
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if name == "run-api" {
		cmd.Stderr = io.Discard // uvicorn logs each request
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	s := &server{name: name, url: fmt.Sprintf("http://127.0.0.1:%d", port), cmd: cmd,
		http: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256},
			Timeout: 5 * time.Minute}}
	for range 600 {
		if r, err := s.http.Get(s.url + "/info"); err == nil {
			_ = r.Body.Close()
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s did not answer within 30 s", name)
}

// stop ends the server, and prints all processor time that it has taken, with what it did after the posts.
func (s *server) stop() {
	s.http.CloseIdleConnections()
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	state := s.cmd.ProcessState
	fmt.Fprintf(os.Stderr, "%s took %.2f s of processor time from its start to its end (%s)\n", s.name,
		(state.UserTime() + state.SystemTime()).Seconds(), state)
}

// cpu is the processor time of the server so far, from the kernel.
func (s *server) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the server's memory in MiB: everything, and without the pages of mapped files.
func (s *server) resident() (all, own float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			all = kib / 1024
		case "RssAnon":
			own = kib / 1024
		}
	}
	return all, own
}

// call makes one request and returns the whole reply.
func (s *server) call(method, path string, body []byte, headers ...string) (int, []byte, error) {
	request, err := http.NewRequest(method, s.url+path, bytes.NewReader(body)) //nolint:noctx // the client has a timeout
	if err != nil {
		return 0, nil, err
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	reply, err := s.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, text, err
}

// prepare empties the server and registers a trainer and environments.
func (s *server) prepare(batchSize, groupSize, environments int) error {
	if _, _, err := s.call(http.MethodGet, "/reset_data", nil); err != nil {
		return err
	}
	registration, _ := json.Marshal(map[string]any{"wandb_group": "", "wandb_project": "", "batch_size": batchSize,
		"max_token_len":  8192,
		"checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1_000_000})
	if code, text, err := s.call(http.MethodPost, "/register", registration); err != nil || code != http.StatusOK {
		return fmt.Errorf("registering with %s: %d %s %w", s.name, code, text, err)
	}
	if _, _, err := s.call(http.MethodGet, "/batch", nil); err != nil {
		return err
	}
	for i := range environments {
		body := fmt.Sprintf(`{"max_token_length":8192,"desired_name":"bench%d","weight":1.0,"group_size":%d}`, i, groupSize)
		if code, text, err := s.call(http.MethodPost, "/register-env", []byte(body)); err != nil || code != http.StatusOK {
			return fmt.Errorf("registering an environment with %s: %d %s %w", s.name, code, text, err)
		}
	}
	return nil
}
