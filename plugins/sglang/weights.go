package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
)

// transports are the ways that the settings allow.
func (c Config) transports() []string {
	var list []string
	if c.withheld() == "" {
		list = append(list, "live", "ipc", "nccl")
	}
	if c.EnableLora {
		list = append(list, "lora")
	}
	if c.Quantization == "" {
		list = append(list, "reload")
	}
	return append(list, "restart")
}

// withheld says why tensors cannot reach the servers without files; empty: they can.
func (c Config) withheld() string {
	switch {
	case c.Quantization != "":
		return fmt.Sprintf("quantization = %q: its parameters are not those that are trained", c.Quantization)
	case c.PpSize > 1:
		return "pp_size > 1: no worker has all layers"
	case c.DpSize > 1:
		return "dp_size > 1; replicas = … are updated one by one"
	}
	return ""
}

// inMemory are the transports that copy a trainer's tensors.
func inMemory(transport string) bool {
	return slices.Contains([]string{"live", "ipc", "nccl"}, transport)
}

// byFiles says that weights are a whole checkpoint to load.
func byFiles(w sdk.Weights) bool {
	return w.Transport == "reload" || w.Transport == "" || w.Format == "hf"
}

// Accepts implements engine.Program.
func (p *program) Accepts(w sdk.Weights) error {
	c := p.config
	switch {
	case w.Format == "lora" && !c.EnableLora:
		return &sdk.Error{
			Summary: "the trainer published a LoRA adapter, but this server was started without LoRA", Detail: w.Path,
			Remedy: "set enable_lora = true (and max_lora_rank) in the inference block, or transport = \"reload\" in the " +
				"sync block",
		}
	case w.Format == "lora", inMemory(w.Transport) && c.withheld() == "", byFiles(w) && c.Quantization == "":
		return nil
	case byFiles(w):
		return &sdk.Error{Summary: "weights cannot be reloaded into a quantized server",
			Detail: "quantization = " + c.Quantization,
			Remedy: "set transport = \"restart\" in the sync block, or serve without quantization"}
	}
	return &sdk.Error{Summary: fmt.Sprintf("this plugin cannot take weights by transport %q", w.Transport),
		Detail: "its settings allow " + strings.Join(c.transports(), ", "),
		Remedy: "set transport to one of these in the sync block, or leave it at auto"}
}

// Load implements engine.Client.
func (c *client) Load(ctx context.Context, l engine.Load) (note string, err error) {
	switch {
	case l.Weights.Format == "lora":
		return "", c.loadAdapter(ctx, l)
	case inMemory(l.Weights.Transport):
		note, err = c.pull(ctx, l)
	default:
		err = c.reload(ctx, l)
	}
	if err != nil {
		return "", err
	}
	return note, c.plainAdapter(ctx)
}

// reload loads a checkpoint folder into the running server.
func (c *client) reload(ctx context.Context, l engine.Load) error {
	w := l.Weights
	if err := engine.CheckCheckpoint(w.Path); err != nil { // before anything is touched
		return err
	}
	return c.between(ctx, l, func() error {
		// The format is said, because a server may have been started with "dummy". The cache is emptied afterwards: to ask
		// for it here while requests are held ends the server.
		body := map[string]any{"model_path": w.Path, "load_format": "auto", "flush_cache": false}
		if err := c.Post(ctx, "/update_weights_from_disk", body, nil); err != nil {
			return fmt.Errorf("load %s: %w", w.Path, err)
		}
		return nil
	})
}

// pull lets the workers copy a trainer's tensors, which they open once, or receive them by nccl.
func (c *client) pull(ctx context.Context, l engine.Load) (note string, err error) {
	w := l.Weights
	var handles struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(w.Handles), &handles); err != nil || handles.Key == "" {
		return "", &sdk.Error{Summary: fmt.Sprintf("version %d was published by %s without handles of its tensors",
			w.Version, w.Transport), Err: err,
			Detail: "the trainer's plugin does not publish that way", Remedy: "set transport = \"reload\" in the sync block"}
	}
	var list []told
	err = c.between(ctx, l, func() error {
		pull := request{Do: "pull", Key: handles.Key, Version: w.Version}
		if list, err = c.call(ctx, pull); err != nil {
			return fmt.Errorf("copy version %d: %w", w.Version, err)
		}
		if slices.ContainsFunc(list, func(t told) bool { return t.Unknown }) {
			if list, err = c.call(ctx, request{Do: "attach", Handles: w.Handles}); err != nil {
				return fmt.Errorf("open the trainer's tensors: %w", err)
			}
			if err := refusal(list, w.Version); err != nil {
				return err
			}
			if list, err = c.call(ctx, pull); err != nil {
				return fmt.Errorf("copy version %d: %w", w.Version, err)
			}
		}
		return refusal(list, w.Version)
	})
	if err != nil {
		return "", err
	}
	t := slices.MaxFunc(list, func(a, b told) int { return int((a.Seconds - b.Seconds) * 1e9) })
	note = fmt.Sprintf("%d tensors, %.1f MB copied in %.1f ms", t.Tensors, float64(t.Bytes)/1e6, t.Seconds*1e3)
	if t.Way != "direct" {
		note += " by SGLang's loader: " + t.Why
	}
	return note, nil
}

// refusal is why a worker did not take weights.
func refusal(list []told, version int64) error {
	for _, t := range list {
		switch {
		case t.Refused != "":
			return &sdk.Error{Summary: fmt.Sprintf("version %d does not fit: %s", version, t.Refused),
				Remedy: "trainer and server must have the same model and reach the same memory, or each other (nccl); transport " +
					"= \"reload\" goes through files"}
		case t.Unknown:
			return errors.New("a worker forgot the trainer's tensors as soon as it had opened them; does something restart it?")
		}
	}
	return nil
}

// resumeTimeout bounds the attempt to let a server go on after an update that failed.
const resumeTimeout = 30 * time.Second

// between does something to the weights while no step is computed, labels the server with their version and empties
// its cache. Requests in flight are frozen where they are, the gateway in front decides whether there are any, and go
// on with what has been computed of them. What was paused is let go on whatever happens. Without the pause SGLang would
// wait until every request has ended, and let no new one in meanwhile.
func (c *client) between(ctx context.Context, l engine.Load, change func() error) (err error) {
	if !l.Asleep { // nothing runs there
		defer func() {
			// Not the caller's context: the way back must be taken when that has ended, too.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
			defer cancel()
			err = errors.Join(err, c.resume(ctx))
		}()
		if err := c.Post(ctx, "/pause_generation", map[string]any{"mode": "in_place"}, nil); err != nil {
			return fmt.Errorf("pause generation for an update: %w", err)
		}
	}
	if err := change(); err != nil {
		return err
	}
	label := map[string]any{"new_version": strconv.FormatInt(l.Weights.Version, 10), "abort_all_requests": false}
	if err := c.Post(ctx, "/update_weight_version", label, nil); err != nil {
		return fmt.Errorf("label the weights as version %d: %w", l.Weights.Version, err)
	}
	if l.Asleep {
		return nil // the cache was emptied when its memory was given back
	}
	return c.forget(ctx)
}

func (c *client) resume(ctx context.Context) error {
	if err := c.Post(ctx, "/continue_generation", map[string]any{"torch_empty_cache": false}, nil); err != nil {
		return fmt.Errorf("let generation go on: %w", err)
	}
	return nil
}

// forget empties the prefix cache, in which the old weights have left what they computed. SGLang refuses while there
// are requests, which is no harm: the gateway salts each request with the policy version, so that what is left is found
// by nobody, and the proof of the weights asks through the cache.
func (c *client) forget(ctx context.Context) error {
	err := c.Post(ctx, "/flush_cache", nil, nil)
	if status := (*engine.StatusError)(nil); err == nil || errors.As(err, &status) {
		return nil
	}
	return fmt.Errorf("empty the prefix cache, which still holds what the old weights computed: %w", err) // it is gone
}

// loadAdapter replaces the LoRA adapter that answers for the policy. SGLang takes no second one of a name, and lets go
// of the first when no request uses it any more.
func (c *client) loadAdapter(ctx context.Context, l engine.Load) error {
	w := l.Weights
	if err := engine.CheckAdapter(w.Path); err != nil {
		return err
	}
	if n, err := c.busy(ctx); err != nil || n > 0 {
		if err != nil {
			return err
		}
		return &sdk.Error{Summary: "SGLang replaces an adapter only when no request uses it",
			Detail: fmt.Sprintf("%d requests are in flight", n),
			Remedy: "set in_flight = \"drain\" (or abort) in the sync block, or move merged weights: transport = \"auto\""}
	}
	if err := c.adapter(ctx, w.Path); err != nil {
		return err
	}
	label := map[string]any{"new_version": strconv.FormatInt(w.Version, 10), "abort_all_requests": false}
	if err := c.Post(ctx, "/update_weight_version", label, nil); err != nil {
		return fmt.Errorf("label the weights as version %d: %w", w.Version, err)
	}
	return c.forget(ctx)
}

func (c *client) adapter(ctx context.Context, path string) error {
	err := c.Post(ctx, "/unload_lora_adapter", map[string]any{"lora_name": adapter}, nil)
	if status := (*engine.StatusError)(nil); err != nil && !errors.As(err, &status) { // else there was none
		return fmt.Errorf("unload the adapter of before: %w", err)
	}
	if err := c.Post(ctx, "/load_lora_adapter", map[string]any{"lora_name": adapter, "lora_path": path}, nil); err != nil {
		return fmt.Errorf("load the adapter %s: %w", path, err)
	}
	return nil
}

// plainAdapter has the server write an adapter that changes nothing and load it under the policy's name, so that
// clients can use one name from the first request on.
func (c *client) plainAdapter(ctx context.Context) error {
	if !c.config.EnableLora {
		return nil
	}
	path := filepath.Join(c.Address.Dir, "adapter-zero")
	if _, err := c.call(ctx, request{Do: "zero_adapter", Path: path}); err != nil {
		return fmt.Errorf("make the first adapter: %w", err)
	}
	return c.adapter(ctx, path)
}
