package transport_test

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/transport"
)

func TestProperties(t *testing.T) {
	t.Parallel()
	for name, want := range map[transport.Name]struct {
		tensors, memory, files, whole bool
		format                        string
		needs                         transport.Name
	}{
		transport.Live:    {tensors: true, memory: true, format: "tensors", needs: "live"},
		transport.IPC:     {tensors: true, memory: true, format: "tensors", needs: "ipc"},
		transport.NCCL:    {tensors: true, format: "tensors", needs: "nccl"},
		transport.LoRA:    {files: true, format: "lora", needs: "lora"},
		transport.Reload:  {files: true, whole: true, format: "hf", needs: "reload"},
		transport.Delta:   {format: "hf", needs: "reload"},
		transport.Restart: {files: true, whole: true, format: "hf", needs: "restart"},
		transport.Auto:    {needs: "auto"},
		"unknown":         {needs: "unknown"},
	} {
		if name.Tensors() != want.tensors || name.Memory() != want.memory || name.Files() != want.files ||
			name.WholeModel() != want.whole || name.Format() != want.format || name.Needs() != want.needs {
			t.Errorf("%s: tensors %v, memory %v, files %v, whole %v, format %q, needs %s", name, name.Tensors(), name.Memory(),
				name.Files(), name.WholeModel(), name.Format(), name.Needs())
		}
	}
}

func TestSupported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name transport.Name
		list []transport.Name
		want bool
	}{
		{name: transport.Reload, want: true},
		{name: transport.Delta, want: true},
		{name: transport.Live, want: false},
		{name: transport.Delta, list: []transport.Name{transport.Reload}, want: true},
		{name: transport.Delta, list: []transport.Name{transport.Live}, want: false},
		{name: transport.Live, list: []transport.Name{transport.Live, transport.Restart}, want: true},
	} {
		if got := c.name.Supported(c.list); got != c.want {
			t.Errorf("%s with %v: %v, want %v", c.name, c.list, got, c.want)
		}
	}
}
