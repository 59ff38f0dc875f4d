// Package workertest plays the Python program of a trainer in tests of plugins on package worker: it speaks the
// protocol and trains nothing.
package workertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

const mark, modeName = "FAKE_WORKER", "FAKE_WORKER_MODE"

// Environment makes a test binary whose TestMain calls Main play the worker when it is started as the block's
// interpreter. The mode says what goes wrong: "" nothing, crash, error, config, poison; hang and patient: no batch
// comes; beside: patient, and goes on preparing on the device; "killed at the stop", "full at the stop".
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
		Control       string `json:"control"`
		Token         string `json:"control_token"`
		CheckpointDir string `json:"checkpoint_dir"`
		Version       int64  `json:"policy_version"`
		Resume        bool   `json:"resume"`
		Wait          bool   `json:"wait_for_sync"`
		Prepare       string `json:"prepare"`
		Data          struct {
			URL string `json:"url"`
		} `json:"data"`
	}
	conn   *jsonrpc2.Conn
	step   int64
	shared bool
	ahead  bool // it says so when it offers weights
	stop   chan os.Signal
}

func playWorker(args []string) int {
	mode := os.Getenv(modeName)
	if mode == "config" {
		fmt.Fprintln(os.Stderr, "the configuration is wrong:\n  loss.nam: unknown setting; did you mean name?")
		return 2
	}
	if len(args) != 4 || args[0] != "-m" || args[2] != "--config" {
		fmt.Fprintln(os.Stderr, "usage", args)
		return 9
	}
	w := &fakeWorker{ahead: mode == "ahead", stop: make(chan os.Signal, 1)}
	data, err := os.ReadFile(args[3])
	if err != nil || json.Unmarshal(data, &w.config) != nil {
		return 9
	}
	// The worker must find its source where PYTHONPATH says.
	if !slices.ContainsFunc(filepath.SplitList(os.Getenv("PYTHONPATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, args[1], "__main__.py"))
		return err == nil
	}) {
		fmt.Fprintln(os.Stderr, "no "+args[1]+" on PYTHONPATH", os.Getenv("PYTHONPATH"))
		return 9
	}
	signal.Notify(w.stop, syscall.SIGTERM)
	w.shared = w.config.Wait
	socket, err := net.Dial("tcp", w.config.Control)
	if err != nil {
		return 9
	}
	w.conn = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(socket),
		jsonrpc2.HandlerWithError(w.serve))
	hello := map[string]any{"token": w.config.Token, "protocol": 2, "rank": 0}
	if err := w.conn.Call(context.Background(), "hello", hello, nil); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		return 9
	}
	return w.train(mode)
}

func (w *fakeWorker) emit(kind string, fields map[string]any) {
	fields["type"], fields["time"] = kind, time.Now().Unix()
	_ = w.conn.Notify(context.Background(), "event", fields)
}

// exceptions are modes in which a library fails within training.
var exceptions = map[string]string{
	"package": "ModuleNotFoundError: No module named 'fastcore'",
	"memory":  "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
	"bug":     "KeyError: 'surprise'",
}

func (w *fakeWorker) train(mode string) int {
	w.emit("phase", map[string]any{"phase": "loading"})
	if w.config.Prepare != "" && !w.start(mode == "beside") {
		return 0
	}
	if w.config.Data.URL == "" {
		w.emit("error", map[string]any{"code": "config", "message": "data.url is empty"})
		return 1
	}
	w.emit("loaded", map[string]any{"parameters": 1, "memory": "host:here", "machine": "here"})
	w.emit("phase", map[string]any{"phase": "connecting"})
	if mode == "error" {
		w.emit("error", map[string]any{"code": "out_of_memory", "message": "the GPU is full",
			"checks": []string{"lower row_tokens", "use lora"}})
		return 1
	}
	if exceptions[mode] != "" {
		w.emit("error", map[string]any{"code": "internal", "message": exceptions[mode]})
		return 1
	}
	if mode == "crash" {
		fmt.Fprintln(os.Stderr, "ModuleNotFoundError: No module named 'peft'")
		return 1
	}
	if w.config.Resume {
		w.step = 3
		w.emit("resumed", map[string]any{"checkpoint": "step_3", "step": 3, "policy_version": w.config.Version})
		if w.config.Wait {
			if !w.ask("sync", 3) {
				return 0
			}
		}
	}
	for w.step < w.config.Steps {
		w.emit("phase", map[string]any{"phase": "waiting", "for_what": "a batch"})
		// with nobody to wait for, the end would come at once
		patient := (mode == "patient" || mode == "beside") && !w.config.Wait
		if mode == "hang" || patient {
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
				w.emit("error", map[string]any{"code": "checkpoint", "message": "step_1 could not be written: no space " +
					"left on device", "checks": []string{"Is the disk full?"}})
				return 1
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if w.shared && !w.ask("turn", w.step+1) {
			return 0
		}
		if mode == "poison" && w.step == 0 {
			w.emit("rejected", map[string]any{"batch": 7, "reasons": map[string]int{"tokens": 1, "shape": 2},
				"examples": map[string]string{"tokens": "an id of 10^26"}, "set_aside": "/checkpoints/set-aside"})
			w.emit("skipped", map[string]any{"batch": 7, "step": 0, "reason": "no group of it can be trained",
				"facts": map[string]any{"rejected_groups/total": 3}})
			w.emit("phase", map[string]any{"phase": "waiting", "for_what": "a batch"})
		}
		w.step++
		w.emit("metric", map[string]any{"batch": 7 + w.step, "step": w.step, "metrics": map[string]any{"reward/mean": 0.5,
			"staleness/histogram": map[string]any{"1": 2.0}, "mfu": nil}})
		w.emit("progress", map[string]any{"step": w.step, "steps": w.config.Steps})
		if w.config.Wait && !w.ask("sync", w.step) {
			return 0
		}
	}
	w.save("end")
	w.emit("phase", map[string]any{"phase": "done", "reason": "completed"})
	return 0
}

// start waits until the block is started, and takes over what it is told then; false: it was told to stop instead.
// beside: it can go on on the device before that.
func (w *fakeWorker) start(beside bool) bool {
	answer := struct {
		Settings any    `json:"settings"`
		Prepare  string `json:"prepare"`
	}{Settings: &w.config}
	params := map[string]any{}
	if beside {
		params["beside"] = true
	}
	answered := make(chan error, 1)
	go func() { answered <- w.conn.Call(context.Background(), "prepared", params, &answer) }()
	select {
	case err := <-answered:
		if err == nil && answer.Prepare == "beside" {
			w.emit("phase", map[string]any{"phase": "loading"})
			return w.start(false)
		}
		w.shared = w.config.Wait
		return err == nil
	case <-w.stop:
		w.emit("phase", map[string]any{"phase": "done", "reason": "stopped"})
		return false
	}
}

// ask waits for the supervisor; false: it was told to stop meanwhile.
func (w *fakeWorker) ask(what string, step int64) bool {
	w.emit("phase", map[string]any{"phase": what, "step": w.step})
	var answer struct {
		Version int64 `json:"version"`
		Shared  bool  `json:"shared"`
	}
	answered := make(chan error, 1)
	params := map[string]any{"step": step}
	if w.ahead {
		params["ahead"] = true
	}
	go func() { answered <- w.conn.Call(context.Background(), what, params, &answer) }()
	select {
	case err := <-answered:
		if w.shared != answer.Shared {
			w.emit("warning", map[string]any{"message": fmt.Sprintf("asks for turns: %v", answer.Shared)})
		}
		w.shared = answer.Shared
		return err == nil
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

func (w *fakeWorker) serve(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
	var body map[string]any
	if r.Params != nil {
		_ = json.Unmarshal(*r.Params, &body)
	}
	switch r.Method {
	case "publish":
		if t := body["transport"]; t == "live" || t == "ipc" || t == "nccl" {
			return map[string]any{"dtype": "float32", "handles": map[string]any{"form": 1, "keep": body["keep"], "by": t}}, nil
		}
		_ = os.WriteFile(filepath.Join(body["dir"].(string), "body.json"), *r.Params, 0o600)
		// As the real one: the phase is told before the answer is.
		w.emit("phase", map[string]any{"phase": "publishing", "step": w.step})
		w.emit("phase", map[string]any{"phase": "sync", "step": w.step})
		return map[string]any{"dir": body["dir"], "dtype": "float32", "bytes": 1, "rounded": body["dtype"] == "bfloat16"}, nil
	case "tokenize":
		return map[string]any{"token_ids": make([]int, len(body["text"].(string)))}, nil
	case "logprobs":
		lp := make([]float64, len(body["token_ids"].([]any))-1)
		for i := range lp {
			lp[i] = -1 - float64(w.step)
		}
		return map[string]any{"logprobs": lp}, nil
	case "taken":
		w.emit("warning", map[string]any{"message": fmt.Sprintf("taken: %v", body)})
		return struct{}{}, nil
	case "checkpoint":
		return map[string]any{"checkpoint": "step_x", "step": w.step}, nil
	case "update":
		if _, ok := body["optimizer"]; !ok {
			e := &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: "only a restart can change steps"}
			e.SetError(map[string]any{"code": "bad_setting", "message": e.Message})
			return nil, e
		}
		return map[string]any{"changed": body}, nil
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: r.Method}
}
