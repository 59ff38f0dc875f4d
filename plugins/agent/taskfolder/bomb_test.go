package taskfolder

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func room() *Room { return &Room{Bytes: 1 << 20, Files: 1000} }

// A small task folder takes neither much memory nor much time to read.
func TestBombsOfATaskAreRefused(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		docker, toml string
		files        int
		want         string
	}{
		"variables": {docker: "FROM a\nENV A=" + strings.Repeat("x", 60_000) + "\n" + lines(900, "ENV B%d=$A\n"),
			want: "the values of ENV have more than"},
		"variables in one line": {docker: "FROM a\nENV A=" + strings.Repeat("x", 60_000) + "\nENV" +
			lines(60_000, " B%d=$A") + "\n", want: "its variables have more than"},
		"patterns":    {docker: "FROM a\n" + lines(900, "COPY * /a%d/\n"), files: 3000, want: "COPY names more than"},
		"folders":     {docker: "FROM a\n" + strings.Repeat("WORKDIR a\n", 100_000), want: "more than 1000 instructions"},
		"a long path": {docker: "FROM a\n" + strings.Repeat("WORKDIR aaaaaaaaa\n", 900), want: "WORKDIR has more than"},
		"steps":       {toml: strings.Repeat("[[steps]]\nname=\"a\"\n", 40_000), want: "more than 10000 keys and values"},
		"many steps":  {toml: lines(500, "[[steps]]\nname=\"a%d\"\n"), want: "it has 500 steps"},
		"artifacts": {toml: "artifacts = [" + lines(2000, "\"a%d\",") + "]\n[verifier.environment]\n",
			want: "artifacts has"},
		"many keys":   {toml: "[verifier.env]\n" + lines(50_000, "a%d=\"1\"\n"), want: "more than 10000 keys and values"},
		"keys in one": {toml: "a = {" + lines(50_000, "a%d=1,") + "b=1}", want: "more than 10000 keys and values"},
		"names":       {toml: "[verifier.env]\n" + lines(1500, "a%d=\"1\"\n"), want: "1500 variables"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"environment/x": "x", "task.toml": c.toml + "\n"}
			if c.docker != "" {
				files["environment/Dockerfile"] = c.docker
			}
			for i := range c.files {
				files[fmt.Sprintf("environment/f%d", i)] = "x"
			}
			write(t, dir, files)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, problems := Read(dir, nil)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
			if text := fmt.Sprint(problems); !strings.Contains(text, c.want) || len(problems) == 0 {
				t.Errorf("problems: %.300s", text)
			}
		})
	}
}

// The problems that are not reported refuse a task, too.
func TestManyProblemsRefuseATask(t *testing.T) {
	r := &reader{task: &Task{Dir: "a"}}
	for range 2 * mostProblems {
		r.warn("x", 1, "a warning")
	}
	if n := len(r.problems); n != mostProblems+1 || r.problems[n-1].Warning {
		t.Errorf("%d problems, the last %v", n, r.problems[n-1])
	}
}

// What takes nothing on the disk takes its size when it is copied: an agent cannot fill the disk by it.
func TestCopiesHaveRoom(t *testing.T) {
	dir, host := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"environment/x": "x"})
	task, problems := Read(dir, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	from, to := task.Mounts(filepath.Join(host, "from")), task.Mounts(filepath.Join(host, "to"))
	for _, mounts := range [][]Mount{from, to} {
		if err := task.Fill(mounts, room()); err != nil {
			t.Fatal(err)
		}
	}
	hole := filepath.Join(from[0].Host, "hole")
	if err := os.WriteFile(hole, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(hole, 1<<19); err != nil {
		t.Fatal(err)
	}
	if err := Carry("/app", from, to, room()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		if err := os.Link(hole, filepath.Join(from[0].Host, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Carry("/app", from, to, room()); err == nil || !strings.Contains(err.Error(), "sandbox.disk") {
		t.Errorf("three names of a file with half of the room: %v", err)
	}
	if err := task.Fill(to, &Room{Bytes: 1 << 20, Files: 1}); err == nil {
		t.Error("more files than there is room for were copied")
	}
}
