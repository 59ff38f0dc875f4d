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
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/sdk/engine"
)

// request is what a worker is asked for by a call of extension/recipe_sglang.py.
type request struct {
	Do      string `json:"do"`
	Reply   string `json:"reply"`   // file for the answer; each worker adds its number
	Handles string `json:"handles"` // attach: as the trainer published them
	Key     string `json:"key"`     // pull: of the handles
	Version int64  `json:"version"` // pull
	Path    string `json:"path"`    // zero_adapter: the folder to write
}

// told is what one worker answers.
type told struct {
	Error   string  `json:"error"`   // it failed; nobody knows what the model holds
	Refused string  `json:"refused"` // the weights cannot fit, and nothing was touched
	Unknown bool    `json:"unknown"` // it has not opened these handles: it is new, or the trainer is
	Way     string  `json:"path"`    // direct or loader
	Why     string  `json:"why"`     // what made it loader
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`

	Reach      []string `json:"reach"`
	Machine    string   `json:"machine"`
	Arithmetic string   `json:"arithmetic"`
	Device     string   `json:"device"`
}

// call has every worker of the server do something between two steps. The route is the one for tensors: it hands a
// list of names and tensors to the function that the plugin named, and the name holds the request. What that function
// returns is dropped, so workers answer in files. The cache is left as it is: to empty it while requests are held ends
// the server.
func (c *client) call(ctx context.Context, r request) ([]told, error) {
	if err := os.MkdirAll(c.Address.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the workers' answers: %w", err)
	}
	r.Reply = filepath.Join(c.Address.Dir, "answer-"+rand.Text())
	n := c.config.workers()
	defer func() {
		for i := range n {
			_ = os.Remove(answerFile(r.Reply, i))
		}
	}()
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a request to the workers: %w", err)
	}
	payloads := make([]string, max(1, c.config.TpSize))
	for i := range payloads {
		payloads[i] = named(text)
	}
	body := map[string]any{"serialized_named_tensors": payloads, "load_format": loader, "flush_cache": false}
	if err := c.Post(ctx, "/update_weights_from_tensor", body, nil); err != nil {
		return nil, err
	}
	list := make([]told, n)
	for i := range list {
		data, err := os.ReadFile(answerFile(r.Reply, i))
		if err == nil {
			err = json.Unmarshal(data, &list[i])
		}
		if err != nil {
			return nil, fmt.Errorf("worker %d left no answer to %q: %w", i, r.Do, err)
		}
		if list[i].Error != "" {
			return nil, fmt.Errorf("worker %d: %s: %w", i, r.Do, errors.New(engine.Brief(list[i].Error)))
		}
	}
	return list, nil
}

func answerFile(reply string, worker int) string { return fmt.Sprintf("%s.%d", reply, worker) }

// named is [(text, torch.tensor(0))] as Python pickles it, in base64.
func named(text []byte) string {
	var b bytes.Buffer
	b.WriteString("\x80\x04](X") // protocol 4; a list; a mark, for what is appended; a string
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(text)))
	b.Write(text)
	b.WriteString("ctorch\ntensor\nK\x00\x85R\x86e.") // torch.tensor(0); both as a tuple; appended
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
