// Package enginetest holds what fake servers of engines share. A fake serves one number: it reads it from the folder
// that it loads, and derives its log-probabilities from it.
package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Model makes a folder that passes for a checkpoint and for an adapter, and whose weights are one number.
func Model(t testing.TB, weight float64) string {
	t.Helper()
	dir := t.TempDir()
	Put(t, dir, "config.json", `{"num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"vocab_size":16,`+
		`"intermediate_size":16,"max_position_embeddings":512,"tie_word_embeddings":true}`)
	Put(t, dir, "weights.txt", strconv.FormatFloat(weight, 'g', -1, 64))
	Put(t, dir, "model.safetensors", safetensors("w"))
	Put(t, dir, "adapter_config.json", "{}")
	Adapt(t, dir, "model.layers.0.self_attn.o_proj")
	return dir
}

// Adapt writes the tensors of an adapter of one module.
func Adapt(t testing.TB, dir, module string) {
	t.Helper()
	Put(t, dir, "adapter_model.safetensors", safetensors("base_model.model."+module+".lora_A.weight"))
}

// safetensors is a file with one tensor of two zeros.
func safetensors(name string) string {
	header := `{"__metadata__":{"format":"pt"},"` + name + `":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return string(append(append(data, header...), make([]byte, 8)...))
}

// Put writes a file.
func Put(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Weight reads the number of a folder that Model has made; 0 if there is none.
func Weight(dir string) float64 {
	data, _ := os.ReadFile(filepath.Join(dir, "weights.txt"))
	v, _ := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
	return v
}

// Flag is the value of a command-line argument; empty: it is not there.
func Flag(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// Exists reports whether a folder holds a file.
func Exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// Reply answers a request in JSON.
func Reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// Page serves a text at every path, as a server does its metrics, and returns the port on loopback.
func Page(t testing.TB, text string) (port int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}
