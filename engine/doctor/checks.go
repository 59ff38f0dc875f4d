package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/internal/openfiles"
)

const gib = 1 << 30

// minPython is what the Python SDK and every Python plugin need.
const minPythonMajor, minPythonMinor = 3, 10

func goToolchain(ctx context.Context, m Machine) Finding {
	path, err := m.LookPath("go")
	if err != nil {
		return Finding{Verdict: OK, Found: "not installed; only building recipe or a Go plugin from source needs it"}
	}
	out, err := m.Run(ctx, path, "env", "GOVERSION")
	if err != nil {
		return Finding{Verdict: Warn, Found: "go does not run: " + reason(ctx, err),
			Remedy: "reinstall Go, or remove it from PATH: only builds from source need it"}
	}
	return Finding{Verdict: OK, Found: strings.TrimSpace(out)}
}

func python(ctx context.Context, m Machine) Finding {
	remedy := fmt.Sprintf(
		"install Python %d.%d or newer (for example `uv python install 3.12`), or set `runtime { python = … }` in "+
			"the recipe; the quickstart needs none",
		minPythonMajor, minPythonMinor)
	path, err := m.LookPath("python3")
	if err != nil {
		return Finding{Verdict: Warn, Found: "no python3 on PATH: blocks with Python programs will not start",
			Remedy: remedy}
	}
	out, err := m.Run(ctx, path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])")
	if err != nil {
		return Finding{Verdict: Warn, Found: path + " does not run: " + reason(ctx, err), Remedy: remedy}
	}
	version := strings.TrimSpace(out)
	major, minor, ok := majorMinor(version)
	if !ok {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s says version %q", path, version), Remedy: remedy}
	}
	if major < minPythonMajor || major == minPythonMajor && minor < minPythonMinor {
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%s is Python %s, older than %d.%d", path, version,
			minPythonMajor, minPythonMinor), Remedy: remedy}
	}
	return Finding{Verdict: OK, Found: "Python " + version + " at " + path}
}

func majorMinor(version string) (major, minor int, ok bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	return major, minor, errMajor == nil && errMinor == nil
}

func uv(ctx context.Context, m Machine) Finding {
	path, err := m.LookPath("uv")
	if err != nil {
		return Finding{Verdict: OK, Found: "not installed; recipe init installs it into the cache of Python environments"}
	}
	out, err := m.Run(ctx, path, "--version")
	if err != nil {
		return Finding{Verdict: Warn, Found: "uv does not run: " + reason(ctx, err),
			Remedy: "reinstall uv, or remove it from PATH: recipe init then installs its own"}
	}
	return Finding{Verdict: OK, Found: strings.TrimSpace(out)}
}

func gpu(ctx context.Context, m Machine) Finding {
	cards, err := cardsOf(ctx, m)
	switch {
	case errors.Is(err, errNoDriver):
		return Finding{Verdict: OK, Found: "no NVIDIA driver; recipes with placement { gpus = … } will not run here, " +
			"those with the tiny plugins will"}
	case err != nil:
		return Finding{Verdict: Warn, Found: err.Error(),
			Remedy: "check the driver with `nvidia-smi`; after a driver update, reboot"}
	}
	var seen, busy []string
	for i, c := range cards {
		seen = append(seen, fmt.Sprintf("GPU %d %s, %.0f GiB, driver %s", i, c.name, c.total/gib, c.driver))
		if c.used > c.total/10 {
			busy = append(busy, fmt.Sprintf("GPU %d has %.1f GiB in use", i, c.used/gib))
		}
	}
	found := strings.Join(seen, "; ")
	if len(busy) > 0 {
		return Finding{Verdict: Warn, Found: found + "; " + strings.Join(busy, "; "),
			Remedy: "find the processes that use the memory with `nvidia-smi`; `recipe status` shows a run that is still " +
				"alive"}
	}
	return Finding{Verdict: OK, Found: found}
}

func ports(_ context.Context, m Machine) Finding {
	if err := m.Listen("127.0.0.1:0"); err != nil {
		return Finding{Verdict: Fail, Found: "no server can listen on 127.0.0.1: " + err.Error(),
			Remedy: "check that the loopback interface is up (`ip addr show lo`) and that no sandbox forbids sockets"}
	}
	var taken []string
	for _, port := range []string{"8000", "9001"} {
		if err := m.Listen("127.0.0.1:" + port); err != nil {
			taken = append(taken, port)
		}
	}
	if len(taken) > 0 {
		return Finding{Verdict: OK, Found: "loopback works; in use by another program: " + strings.Join(taken, ", ") +
			" (matters only for a recipe that uses that port)"}
	}
	return Finding{Verdict: OK, Found: "loopback works; 8000 and 9001 are free"}
}

func disk(_ context.Context, m Machine) Finding {
	free, err := m.Disk(m.Dir)
	if err != nil {
		return Finding{Verdict: Warn, Found: "free space unknown: " + err.Error(), Remedy: "check that " + m.Dir +
			" exists and can be read"}
	}
	found := fmt.Sprintf("%.1f GiB free at %s", float64(free)/gib, m.Dir)
	switch {
	case free < gib/4:
		return Finding{Verdict: Fail, Found: found,
			Remedy: "free some space: a run needs at least 0.25 GiB for its events and checkpoints"}
	case free < 20*gib:
		return Finding{Verdict: Warn, Found: found,
			Remedy: "enough for the quickstart; a checkpoint of a 1.5 B model with its optimizer is about 20 GiB"}
	}
	return Finding{Verdict: OK, Found: found}
}

func memory(_ context.Context, m Machine) Finding {
	total, available, err := m.Memory()
	if err != nil {
		return Finding{Verdict: Warn, Found: "memory unknown: " + err.Error(),
			Remedy: "make sure that at least 1 GiB is free"}
	}
	found := fmt.Sprintf("%.1f GiB, %.1f GiB available", float64(total)/gib, float64(available)/gib)
	if available < gib/2 {
		return Finding{Verdict: Warn, Found: found,
			Remedy: "close other programs: the quickstart needs about 0.5 GiB, a GPU recipe several"}
	}
	return Finding{Verdict: OK, Found: found}
}

func openFiles(_ context.Context, m Machine) Finding {
	limit, err := m.Files()
	if err != nil {
		return Finding{Verdict: Warn, Found: "limit unknown: " + err.Error(), Remedy: "check `ulimit -n`"}
	}
	found := fmt.Sprintf("%d per process", limit)
	if limit > 1<<60 {
		found = "no limit"
	}
	if openfiles.TooFew(limit, "here") != "" {
		return Finding{Verdict: Fail, Found: found, Remedy: openfiles.Remedy}
	}
	if limit < 1024 {
		return Finding{Verdict: Warn, Found: found,
			Remedy: "raise it with `ulimit -n 4096`: a gateway uses one file for each request in flight"}
	}
	return Finding{Verdict: OK, Found: found}
}

func runDirectory(_ context.Context, m Machine) Finding {
	dir, err := filepath.Abs(m.Dir)
	if err == nil {
		err = m.Writable(dir)
	}
	if err != nil {
		return Finding{Verdict: Fail, Found: fmt.Sprintf("%s is not writable: %v", dir, err),
			Remedy: "move the recipe to a writable folder: its run directory .recipe is created beside it"}
	}
	runs := filepath.Join(dir, ".recipe")
	if _, err := m.ReadFile(filepath.Join(runs, ".gitignore")); errors.Is(err, syscall.ENOTDIR) {
		return Finding{Verdict: Fail, Found: runs + " is not a folder",
			Remedy: "move it away: the run directory is created in a folder of that name"}
	}
	return Finding{Verdict: OK, Found: runs}
}

// reason says in one line why a program failed: the last line of its stderr, if any.
func reason(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return fmt.Sprintf("no answer within %s", deadline)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if words := strings.TrimSpace(string(exit.Stderr)); words != "" {
			lines := strings.Split(words, "\n")
			return lines[len(lines)-1]
		}
	}
	return err.Error()
}
