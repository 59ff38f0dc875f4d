package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/engine/trust"
)

// healthy is a machine without any problem; each case breaks one thing.
func healthy(dir string) Machine {
	answers := map[string]string{
		"go":         "go1.26.0\n",
		"python3":    "3.12.4\n",
		"uv":         "uv 0.9.1\n",
		"nvidia-smi": "NVIDIA H200, 143771, 12, 570.1\n",
	}
	return Machine{Allow: func(trust.Use) error { return nil },
		Dir:       dir,
		OS:        "linux",
		LookPath:  func(name string) (string, error) { return name, nil },
		LookupEnv: func(string) (string, bool) { return "", false },
		Run: func(_ context.Context, name string, args ...string) (string, error) {
			if name == "nvidia-smi" && strings.Contains(args[0], "compute-apps") {
				return "", nil
			}
			return answers[name], nil
		},
		Listen:   func(string) error { return nil },
		Writable: func(string) error { return nil },
		Disk:     func(string) (uint64, error) { return 100 * gib, nil },
		Memory:   func() (uint64, uint64, error) { return 32 * gib, 16 * gib, nil },
		Files:    func() (uint64, error) { return 4096, nil },

		Processes: func() (uint64, error) { return 1 << 62, nil },
		Size:      func(string) (uint64, error) { return 64 * gib, nil },
		ReadFile: func(path string) ([]byte, error) {
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		},
		Interfaces: func() ([]string, error) { return []string{"lo", "eth0"}, nil },
	}
}

// variables sets variables of the environment: NAME=VALUE.
func variables(list ...string) func(*Machine) {
	return func(m *Machine) {
		m.LookupEnv = func(name string) (string, bool) {
			for _, v := range list {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}
	}
}

// holds puts a file on the machine.
func holds(path, text string) func(*Machine) {
	return func(m *Machine) {
		before := m.ReadFile
		m.ReadFile = func(name string) ([]byte, error) {
			if name == path {
				return []byte(text), nil
			}
			return before(name)
		}
	}
}

//docs:survival.md installation
func TestExamine(t *testing.T) {
	t.Parallel()
	missing := func(name string) func(*Machine) {
		return func(m *Machine) {
			m.LookPath = func(n string) (string, error) {
				if n == name {
					return "", exec.ErrNotFound
				}
				return n, nil
			}
		}
	}
	says := func(program, answer string, err error) func(*Machine) {
		return func(m *Machine) {
			before := m.Run
			m.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				if name == program {
					return answer, err
				}
				return before(ctx, name, args...)
			}
		}
	}
	space := func(at string, free uint64) func(*Machine) {
		return func(m *Machine) {
			m.Disk = func(dir string) (uint64, error) {
				if dir == at {
					return free, nil
				}
				return 100 * gib, nil
			}
		}
	}
	cases := []struct {
		name    string
		change  func(*Machine)
		finding string
		want    Verdict
		found   string
		remedy  string
	}{
		{"all well", func(*Machine) {}, "python", OK, "Python 3.12.4", ""},
		{"gpu named", func(*Machine) {}, "gpu", OK, "NVIDIA H200, 140 GiB", ""},
		{"no go", missing("go"), "go", OK, "not installed", ""},
		{"broken go", says("go", "", errors.New("exec format error")), "go", Warn, "exec format error", "reinstall Go"},
		{"no uv", missing("uv"), "uv", OK, "not installed", ""},
		{"broken uv", says("uv", "", errors.New("exec format error")), "uv", Warn, "exec format error", "reinstall uv"},
		{"no python", missing("python3"), "python", Warn, "no python3 on PATH", "uv python install"},
		{"old python", says("python3", "3.9.18\n", nil), "python", Warn, "older than 3.10", "uv python install"},
		{"odd python", says("python3", "PyPy\n", nil), "python", Warn, `"PyPy"`, "uv python install"},
		{"broken driver", says("nvidia-smi", "", errors.New("driver/library version mismatch")), "gpu", Warn,
			"version mismatch", "reboot"},
		{"busy gpu", says("nvidia-smi", "NVIDIA L4, 23034, 20000, 570.1\n", nil), "gpu", Warn,
			"GPU 0 has 19.5 GiB in use", "recipe status"},
		{"no gpu", missing("nvidia-smi"), "gpu", OK, "no NVIDIA driver", ""},
		{"no loopback", func(m *Machine) {
			m.Listen = func(string) error {
				return errors.New(
					"operation not permitted")
			}
		}, "ports", Fail, "not permitted", "loopback"},
		{"port taken", func(m *Machine) {
			m.Listen = func(a string) error {
				if strings.HasSuffix(a, ":8000") {
					return errors.New("in use")
				}
				return nil
			}
		}, "ports", OK, "in use by another program: 8000", ""},
		{"disk full", func(m *Machine) { m.Disk = func(string) (uint64, error) { return 1 << 20, nil } }, "disk", Fail,
			"0.0 GiB free", "free some space"},
		{"disk small", func(m *Machine) { m.Disk = func(string) (uint64, error) { return 5 * gib, nil } }, "disk", Warn,
			"5.0 GiB free", "checkpoint"},
		{"little memory", func(m *Machine) { m.Memory = func() (uint64, uint64, error) { return gib, gib / 4, nil } },
			"memory", Warn, "0.2 GiB available", "close"},
		{"too few files", func(m *Machine) { m.Files = func() (uint64, error) { return 127, nil } }, "open files", Fail,
			"127", "ulimit -n 4096"},
		{"few files", func(m *Machine) { m.Files = func() (uint64, error) { return 256, nil } }, "open files", Warn,
			"256", "ulimit -n 4096"},
		{"few processes", func(m *Machine) { m.Processes = func() (uint64, error) { return 512, nil } }, "processes", Warn,
			"512", "ulimit -u"},
		{"shared memory", func(*Machine) {}, "shared memory", OK, "64.0 GiB", ""},
		{"shared memory of Docker", func(m *Machine) { m.Size = func(string) (uint64, error) { return 64 << 20, nil } },
			"shared memory", Warn, "0.1 GiB", "--shm-size"},
		{"no shared memory", func(m *Machine) {
			m.Size = func(string) (uint64, error) { return 0, errors.New("no such file") }
		}, "shared memory", Warn, "no such file", "mount a tmpfs"},
		{"no limit of memory", holds("/sys/fs/cgroup/memory.max", "max\n"), "memory limit", OK, "none", ""},
		{"limit of memory", holds("/sys/fs/cgroup/memory.max", "8589934592\n"), "memory limit", OK,
			"8.0 GiB, of the 32.0 GiB", ""},
		{"low limit of memory", holds("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"), "memory limit", Warn,
			"1.0 GiB", "docker run --memory"},
		{"ports of the system", holds("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"), "port range", OK,
			"32768 to 60999", ""},
		{"few ports", holds("/proc/sys/net/ipv4/ip_local_port_range", "50000 50100"), "port range", Warn, "50000 to 50100",
			"sysctl"},
		{"offline", variables("HOME=/root", "TRANSFORMERS_OFFLINE=1"), "model cache", OK,
			"TRANSFORMERS_OFFLINE forbids downloads", ""},
		{"cache elsewhere", variables("HF_HOME=/models"), "model cache", OK, "/models/hub, 100.0 GiB free", ""},
		{"full cache", func(m *Machine) { variables("HF_HOME=/models")(m); space("/models/hub", gib)(m) }, "model cache",
			Warn, "1.0 GiB free", "HF_HOME"},
		{"long temporary folder", variables("TMPDIR=/scratch/" + strings.Repeat("x", 70)), "temporary folder", Warn,
			"too long", "TMPDIR"},
		{"full temporary folder", space("/tmp", gib/2), "temporary folder", Warn, "0.5 GiB free", "TMPDIR"},
		{"wrong interface", variables("NCCL_SOCKET_IFNAME=ib0"), "nccl", Warn, "names no interface", "ip -br link"},
		{"interface", variables("NCCL_SOCKET_IFNAME=eth"), "nccl", OK, "NCCL_SOCKET_IFNAME=eth", ""},
		{"whole name of an interface", variables("GLOO_SOCKET_IFNAME==eth"), "nccl", Warn, "names no interface", "unset"},
		{"all interfaces but some", variables("NCCL_SOCKET_IFNAME=^docker,lo"), "nccl", OK, "^docker,lo", ""},
		{"slow collectives", variables("NCCL_P2P_DISABLE=1"), "nccl", Warn, "NCCL_P2P_DISABLE=1", "slower"},
		{"expandable segments", variables("PYTORCH_CUDA_ALLOC_CONF=expandable_segments: True"), "gpu allocator", Warn,
			"expandable_segments", "sleep mode"},
		{"another allocator setting", variables("PYTORCH_ALLOC_CONF=max_split_size_mb:128"), "gpu allocator", OK,
			"max_split_size_mb", ""},
		{"share of a GPU", variables("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60"), "gpu share", Warn,
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60", "unset it"},
		{"all of a GPU", variables("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"), "gpu share", OK, "none is set", ""},
		{"PYTHONPATH", variables("PYTHONPATH=/opt/site"), "python variables", Warn, "PYTHONPATH=/opt/site", "unset"},
		{"PYTHONHOME", variables("PYTHONHOME=/opt/python"), "python variables", Warn, "PYTHONHOME", "standard library"},
		{"free gpu", func(*Machine) {}, "gpu processes", OK, "none on any GPU", ""},
		{"orphans on a gpu", func(m *Machine) {
			holds("/proc/7/stat", "7 (python)")(m)
			m.Run = func(context.Context, string, ...string) (string, error) {
				return "7, 2048, python\n812, 40960, VLLM::EngineCore\n", nil
			}
		}, "gpu processes", Warn, "pid 7 (python, 2048 MiB); pid 812 (VLLM::EngineCore, 40960 MiB), not visible",
			"recipe destroy"},
		{"folder of others", func(m *Machine) {
			m.Writable = func(string) error {
				return errors.New(
					"permission denied")
			}
		}, "run directory", Fail, "permission denied", "writable folder"},
		{"a file in place of run directories", func(m *Machine) {
			m.ReadFile = func(path string) ([]byte, error) {
				return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
			}
		}, "run directory", Fail, "/srv/recipes/.recipe is not a folder", "move it away"},
	}
	unwell := map[string]bool{}
	for _, c := range cases {
		unwell[c.finding] = unwell[c.finding] || c.want != OK
	}
	for _, c := range checks() {
		if !unwell[c.name] {
			t.Errorf("no case has something that the check %q finds", c.name)
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := healthy("/srv/recipes")
			c.change(&m)
			for _, f := range Examine(context.Background(), m) {
				if f.Name != c.finding {
					continue
				}
				if f.Verdict != c.want || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Remedy, c.remedy) {
					t.Fatalf("got %+v, want verdict %s, found …%s…, remedy …%s…", f, c.want, c.found, c.remedy)
				}
				if strings.Contains(f.Found+f.Remedy, "secret") {
					t.Fatalf("a password is shown: %+v", f)
				}
				if c.remedy == "" && f.Remedy != "" {
					t.Fatalf("a check that is well offers a remedy: %+v", f)
				}
				return
			}
			t.Fatalf("no finding named %q", c.finding)
		})
	}
}

func TestFailed(t *testing.T) {
	t.Parallel()
	if Failed([]Finding{{Verdict: OK}, {Verdict: Warn}}) {
		t.Fatal("a warning must not fail the examination")
	}
	if !Failed([]Finding{{Verdict: OK}, {Verdict: Fail}}) {
		t.Fatal("a failed check must fail the examination")
	}
}

func TestLocalLooksAtThisMachine(t *testing.T) {
	t.Parallel()
	m := Local(t.TempDir())
	if free, err := m.Disk(m.Dir); err != nil || free == 0 {
		t.Fatalf("disk: %d, %v", free, err)
	}
	if total, available, err := m.Memory(); err != nil || available > total || total == 0 {
		t.Fatalf("memory: %d of %d, %v", available, total, err)
	}
	if err := m.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
}

func TestHardware(t *testing.T) {
	t.Parallel()
	m := healthy("/srv")
	m.Run = func(context.Context, string, ...string) (string, error) {
		return "NVIDIA H200, 143771, 12, 570.1\nNVIDIA L4, 23034, 0, 570.1\n", nil
	}
	for name, c := range map[string]struct {
		visible string
		set     bool
		devices []string
		memory  float64
	}{
		"all":                          {"", false, []string{"0", "1"}, 23034 * (1 << 20)},
		"one of them":                  {"0", true, []string{"0"}, 143771 * (1 << 20)},
		"in another order":             {"1, 0", true, []string{"1", "0"}, 23034 * (1 << 20)},
		"by UUID":                      {"GPU-8932f937", true, []string{"GPU-8932f937"}, 23034 * (1 << 20)},
		"none":                         {"", true, nil, 0},
		"an invalid one ends the list": {"0,-1,1", true, []string{"0"}, 143771 * (1 << 20)},
		"one that is not there":        {"7", true, nil, 0},
	} {
		m.LookupEnv = func(string) (string, bool) { return c.visible, c.set }
		if h := Hardware(context.Background(), m); !slices.Equal(h.Devices, c.devices) || h.GPUMemory != c.memory ||
			h.DiskFree != 100*gib {
			t.Errorf("%s: %+v, want devices %v of %.0f bytes", name, h, c.devices, c.memory)
		}
	}
	m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	m.Disk = func(string) (uint64, error) { return 0, errors.New("gone") }
	if h := Hardware(context.Background(), m); len(h.Devices) != 0 || h.GPUMemory != 0 || h.DiskFree != 0 {
		t.Fatalf("what is not known must be zero: %+v", h)
	}
}

func TestThePageHasEveryCheck(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks() {
		if !strings.Contains(string(page), "\n| `"+c.name+"` |") {
			t.Errorf("docs/doctor.md does not have the check %q", c.name)
		}
	}
}
