package sglang

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// request is what extension/recipe_sglang.py asks of each worker.
type request struct {
	Do      string `json:"do"`
	Reply   string `json:"reply"`   // file for the answer; each worker appends its number
	Handles string `json:"handles"` // attach: as the trainer published them
	Key     string `json:"key"`     // pull: of the handles
	Version int64  `json:"version"` // pull
	Path    string `json:"path"`    // zero_adapter: the folder to write
	// Modules are those of an adapter, for unknown_modules.
	Modules []string `json:"modules,omitempty"`
}

// lacking is a worker's answer to unknown_modules.
type lacking struct {
	Unknown []string `json:"unknown"` // that it has no place for
	Served  []string `json:"served"`  // kinds of module that it has
}

// failure is an answer of a worker that failed; what its model holds is unknown then.
type failure struct {
	Error string `json:"error"`
}

// call runs a request on every worker of the server, between two steps, and returns their answers. The route is that
// for tensors: it passes a list of names and tensors to the function that the plugin named, and the name holds the
// request. What that function returns is dropped, so workers answer in files. The cache is kept: emptying it while
// requests are held would end the server.
func call[Answer any](ctx context.Context, c *client, r request) ([]Answer, error) {
	if err := os.MkdirAll(c.Address.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the workers' answers: %w", err)
	}
	r.Reply = filepath.Join(c.Address.Dir, "answer-"+rand.Text())
	n := c.config.parallel().Workers()
	defer func() {
		for i := range n {
			_ = os.Remove(answerFile(r.Reply, i))
		}
	}()
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a request to the workers: %w", err)
	}
	payloads := slices.Repeat([]string{named(text)}, int(max(1, c.config.TpSize)))
	body := map[string]any{"serialized_named_tensors": payloads, "load_format": loader, "flush_cache": false}
	if err := c.inSession(ctx, func() error { return c.Post(ctx, "/update_weights_from_tensor", body, nil) }); err != nil {
		return nil, err
	}
	answers := make([]Answer, n)
	for i := range answers {
		var failed failure
		data, err := os.ReadFile(answerFile(r.Reply, i))
		if err == nil {
			err = errors.Join(json.Unmarshal(data, &answers[i]), json.Unmarshal(data, &failed))
		}
		if err != nil {
			return nil, fmt.Errorf("worker %d left no answer to %q: %w", i, r.Do, err)
		}
		if failed.Error != "" {
			return nil, fmt.Errorf("worker %d: %s: %w", i, r.Do, errors.New(engine.Brief(failed.Error)))
		}
	}
	return answers, nil
}

// inSession calls do between the begin and the end of an update, outside of which newer versions of SGLang refuse the
// route for tensors. Older ones do not have the two routes.
func (c *client) inSession(ctx context.Context, do func() error) (err error) {
	err = c.Post(ctx, "/begin_weight_update", map[string]any{}, nil)
	var status *engine.StatusError
	switch {
	case err == nil:
	case !errors.As(err, &status):
		return fmt.Errorf("begin an update: %w", err)
	case status.Status == http.StatusNotFound:
		return do()
	default: // the session of a process that has died is still open; it is ended here
	}
	defer func() {
		ctx, cancel := engine.CleanupContext(ctx) // a session that stays open would refuse the next one
		defer cancel()
		if failed := c.Post(ctx, "/end_weight_update", map[string]any{}, nil); failed != nil {
			err = errors.Join(err, fmt.Errorf("end an update: %w", failed))
		}
	}()
	return do()
}

func answerFile(reply string, worker int) string { return fmt.Sprintf("%s.%d", reply, worker) }

// named is [(text, torch.FloatTensor())] as Python pickles it, in base64. SGLang's unpickler refuses torch.tensor from
// 0.5.23 on, and lets the types of tensors pass.
func named(text []byte) string {
	var b bytes.Buffer
	b.WriteString("\x80\x04](X") // protocol 4; a list; the mark where what is appended begins; a string
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(text)))
	b.Write(text)
	b.WriteString("ctorch\nFloatTensor\n)R\x86e.") // torch.FloatTensor(); both as a tuple; appended
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
