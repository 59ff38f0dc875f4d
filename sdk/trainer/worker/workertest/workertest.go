// Package workertest plays the Python program of a trainer in tests of plugins on package worker: it speaks the protocol and trains
// nothing.
package workertest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const mark, modeName = "FAKE_WORKER", "FAKE_WORKER_MODE"

// Environment makes a test binary whose TestMain calls Main play the worker when it is started as the block's interpreter. The mode says
// what goes wrong: "" nothing, crash, error, config, poison; hang and patient: no batch comes; quick: steps end before answers come;
// "killed at the stop", "full at the stop".
func Environment(mode string) map[string]string {
	return map[string]string{mark: "1", modeName: mode}
}

// Main plays the worker and ends the process, if it was started for that.
func Main() {
	if os.Getenv(mark) != "" {
		os.Exit(playWorker(os.Args[1:]))
	}
}

type fakeWorker struct {
	config struct {
		Steps         int64  `json:"steps"`
		Events        string `json:"events_file"`
		Ready         string `json:"ready_file"`
		Token         string `json:"control_token"`
		CheckpointDir string `json:"checkpoint_dir"`
		Version       int64  `json:"policy_version"`
		Resume        bool   `json:"resume"`
		Wait          bool   `json:"wait_for_sync"`
		Grant         bool   `json:"wait_for_grant"`
	}
	events  *os.File
	version int64
	step    int64
	synced  chan int64
	granted chan bool
	stop    chan os.Signal
	quick   bool
}

func playWorker(args []string) int {
	mode := os.Getenv(modeName)
	if mode == "config" {
		fmt.Fprintln(os.Stderr, "the configuration is wrong:\n  loss.nam: unknown setting; did you mean name?")
		return 2
	}
	if len(args) != 4 || args[0] != "-m" || args[1] != "worker" || args[2] != "--config" {
		fmt.Fprintln(os.Stderr, "usage", args)
		return 9
	}
	w := &fakeWorker{synced: make(chan int64, 16), granted: make(chan bool, 16), stop: make(chan os.Signal, 1)}
	data, err := os.ReadFile(args[3])
	if err != nil || json.Unmarshal(data, &w.config) != nil {
		return 9
	}
	// The worker must find its source where PYTHONPATH says.
	if !slices.ContainsFunc(filepath.SplitList(os.Getenv("PYTHONPATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "worker", "__main__.py"))
		return err == nil
	}) {
		fmt.Fprintln(os.Stderr, "no worker on PYTHONPATH", os.Getenv("PYTHONPATH"))
		return 9
	}
	w.quick = mode == "quick"
	signal.Notify(w.stop, syscall.SIGTERM)
	if w.events, err = os.OpenFile(w.config.Events, os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return 9
	}
	w.version = w.config.Version
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 9
	}
	go func() { _ = http.Serve(l, http.HandlerFunc(w.serve)) }() //nolint:gosec // ends with the process
	ready, _ := json.Marshal(map[string]any{"address": "http://" + l.Addr().String(), "pid": os.Getpid(), "protocol": 1})
	if err := os.WriteFile(w.config.Ready+".part", ready, 0o600); err != nil {
		return 9
	}
	_ = os.Rename(w.config.Ready+".part", w.config.Ready)
	return w.train(mode)
}

func (w *fakeWorker) emit(kind string, fields map[string]any) {
	fields["type"], fields["time"] = kind, time.Now().Unix()
	data, _ := json.Marshal(fields)
	_, _ = w.events.Write(append(data, '\n'))
}

func (w *fakeWorker) train(mode string) int {
	w.emit("phase", map[string]any{"phase": "loading"})
	w.emit("loaded", map[string]any{"parameters": 1, "memory": "host:here", "machine": "here"})
	w.emit("phase", map[string]any{"phase": "connecting"})
	if mode == "error" {
		w.emit("error", map[string]any{"code": "out_of_memory", "message": "the GPU is full", "checks": []string{"lower row_tokens", "use lora"}})
		return 1
	}
	if mode == "crash" {
		fmt.Fprintln(os.Stderr, "ModuleNotFoundError: No module named 'peft'")
		return 1
	}
	if w.config.Resume {
		w.step = 3
		w.emit("resumed", map[string]any{"checkpoint": "step_3", "step": 3, "policy_version": w.version})
		if w.config.Wait {
			w.emit("phase", map[string]any{"phase": "sync", "step": 3})
			if !w.await() {
				return 0
			}
		}
	}
	for w.step < w.config.Steps {
		w.emit("phase", map[string]any{"phase": "waiting", "for_what": "a batch"})
		if mode == "hang" || (mode == "patient" && !w.config.Wait) { // with nobody to wait for, the end would come at once
			<-w.stop
			w.save("stop")
			w.emit("phase", map[string]any{"phase": "done", "reason": "stopped"})
			return 0
		}
		if mode == "killed at the stop" || mode == "full at the stop" {
			w.step++
			w.emit("progress", map[string]any{"step": w.step, "steps": w.config.Steps})
			w.emit("phase", map[string]any{"phase": "waiting", "for_what": "a batch"})
			<-w.stop
			if mode == "full at the stop" {
				w.emit("error", map[string]any{"code": "checkpoint", "message": "step_1 could not be written: no space left on device", "checks": []string{"Is the disk full?"}})
				return 1
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if w.config.Grant && !w.awaitTurn() {
			return 0
		}
		if mode == "poison" && w.step == 0 {
			w.emit("rejected", map[string]any{"batch": 7, "reasons": map[string]int{"tokens": 1, "shape": 2}, "examples": map[string]string{"tokens": "an id of 10^26"}, "set_aside": "/checkpoints/set-aside"})
			w.emit("skipped", map[string]any{"batch": 7, "step": 0, "reason": "no group of it can be trained", "facts": map[string]any{"rejected_groups/total": 3}})
			w.emit("phase", map[string]any{"phase": "waiting", "for_what": "a batch"})
		}
		w.step++
		w.emit("metric", map[string]any{"batch": 7 + w.step, "step": w.step, "metrics": map[string]any{"reward/mean": 0.5, "staleness/histogram": map[string]any{"1": 2.0}, "mfu": nil}})
		w.emit("progress", map[string]any{"step": w.step, "steps": w.config.Steps})
		w.emit("weights", map[string]any{"ready": true, "step": w.step})
		if w.config.Wait {
			w.emit("phase", map[string]any{"phase": "sync", "step": w.step})
			if !w.await() {
				return 0
			}
		}
	}
	w.save("end")
	w.emit("phase", map[string]any{"phase": "done", "reason": "completed"})
	return 0
}

// awaitTurn waits for a grant, or for the word that none is needed.
func (w *fakeWorker) awaitTurn() bool {
	w.emit("phase", map[string]any{"phase": "grant", "step": w.step})
	w.emit("phase", map[string]any{"phase": "grant", "step": w.step}) // as after a command
	select {
	case shared := <-w.granted:
		w.config.Grant = shared
		return true
	case <-w.stop:
		w.save("stop")
		w.emit("phase", map[string]any{"phase": "done", "reason": "stopped"})
		return false
	}
}

func (w *fakeWorker) await() bool {
	select {
	case <-w.synced:
		return true
	case <-w.stop:
		w.save("stop")
		w.emit("phase", map[string]any{"phase": "done", "reason": "stopped"})
		return false
	}
}

func (w *fakeWorker) save(why string) {
	path := filepath.Join(w.config.CheckpointDir, fmt.Sprintf("step_%d", w.step))
	w.emit("checkpoint", map[string]any{"path": path, "step": w.step, "why": why})
}

func (w *fakeWorker) serve(out http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+w.config.Token {
		out.WriteHeader(http.StatusUnauthorized)
		return
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	var answer any
	switch r.URL.Path {
	case "/state":
		answer = map[string]any{"policy_version": w.version, "step": w.step}
	case "/publish":
		w.version = int64(body["version"].(float64))
		if body["transport"] == "ipc" || body["transport"] == "nccl" {
			answer = map[string]any{"version": w.version, "dtype": "float32", "handles": map[string]any{"form": 1, "keep": body["keep"], "by": body["transport"]}}
			break
		}
		_ = os.WriteFile(filepath.Join(body["dir"].(string), "body.json"), mustJSON(body), 0o600)
		// As the real one: the phase is told before the answer is.
		w.emit("phase", map[string]any{"phase": "publishing", "step": w.step})
		w.emit("phase", map[string]any{"phase": "sync", "step": w.step})
		answer = map[string]any{"version": w.version, "dir": body["dir"], "dtype": "float32", "bytes": 1, "rounded": body["dtype"] == "bfloat16"}
	case "/synced":
		if v := int64(body["version"].(float64)); v != w.version {
			out.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(out).Encode(map[string]any{"error": map[string]any{"code": "x", "message": fmt.Sprintf("version %d was acknowledged, the last one published is %d", v, w.version)}})
			return
		}
		w.synced <- w.version
		w.dawdle()
		answer = map[string]any{}
	case "/logprobs":
		if text, ok := body["text"].(string); ok {
			answer = map[string]any{"token_ids": make([]int, len(text)), "logprobs": make([]float64, len(text)-1)}
			break
		}
		lp := make([]float64, len(body["token_ids"].([]any))-1)
		for i := range lp {
			lp[i] = -1 - float64(w.step)
		}
		answer = map[string]any{"logprobs": lp}
	case "/checkpoint":
		answer = map[string]any{"checkpoint": "step_x", "step": w.step}
	case "/grant":
		w.granted <- true
		w.dawdle()
		answer = map[string]any{}
	case "/update":
		if shared, ok := body["wait_for_grant"].(bool); ok {
			w.emit("warning", map[string]any{"message": fmt.Sprintf("asks for turns: %v", shared)})
			w.granted <- shared
			_ = json.NewEncoder(out).Encode(map[string]any{})
			return
		}
		if _, ok := body["optimizer"]; !ok {
			out.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(out).Encode(map[string]any{"error": map[string]any{"code": "bad_setting", "message": "only a restart can change steps"}})
			return
		}
		answer = map[string]any{"changed": body}
	}
	_ = json.NewEncoder(out).Encode(answer)
}

// dawdle holds back an answer until the training loop, which has what it needs, has gone on.
func (w *fakeWorker) dawdle() {
	if w.quick {
		time.Sleep(300 * time.Millisecond)
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
