package plugintest

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// fakeMemory stands for a trainer's memory, which inference copies weights from (transports live, ipc and nccl). It is
// a file that goes with the trainer. Like the parameters on a GPU it follows every step, unless the trainer was asked
// to keep what it published.
type fakeMemory struct {
	dir    string
	shared bool
	keep   bool
}

func (m *fakeMemory) path() string { return filepath.Join(m.dir, "memory", "fake.json") }

func (m *fakeMemory) write(step int64) error {
	if err := os.MkdirAll(filepath.Dir(m.path()), 0o700); err != nil {
		return err
	}
	_, err := FakeWeights(filepath.Dir(m.path()), float64(step))
	return err
}

// trained changes the weights in place.
func (m *fakeMemory) trained(step int64) {
	if m.shared && !m.keep {
		_ = m.write(step) // a test that reads it fails with what is missing
	}
}

func (m *fakeMemory) end() { _ = os.RemoveAll(filepath.Dir(m.path())) }

// share publishes without files.
func (f *fakeTrainer) share(r trainer.PublishRequest) (sdk.Weights, error) {
	f.memory.shared, f.memory.keep = true, r.Keep
	if err := f.memory.write(f.step); err != nil {
		return sdk.Weights{}, err
	}
	handles, err := json.Marshal(fakeHandles{Key: f.memory.path(), Memory: f.memory.path()})
	if r.Have == f.memory.path() {
		handles, err = json.Marshal(fakeHandles{Key: r.Have, Same: true})
	}
	return sdk.Weights{Version: r.Version, Format: "fake", Transport: r.Transport, Precision: "float64",
		Handles: string(handles)}, err
}

type fakeHandles struct {
	Key    string `json:"key"`
	Same   bool   `json:"same,omitempty"` // nothing else is said, because it is known
	Memory string `json:"memory,omitempty"`
}

// fakePlace is where weights lie that were published to a fake server.
func fakePlace(w sdk.Weights) string {
	var h fakeHandles
	if w.Handles == "" || json.Unmarshal([]byte(w.Handles), &h) != nil {
		return w.Path
	}
	return h.Memory
}
