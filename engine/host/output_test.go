package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// shell is a plugin that does something before it serves.
func shell(t *testing.T, before string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ticker")
	script := fmt.Sprintf("#!/bin/sh\n%s\n%s=environment/ticker exec %s\n", before, protocol.BuiltinKey, os.Args[0])
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const goPanic = `cat >&2 <<'END'
goroutine 7 [running]: an older text
panic: sdk: environment "ticker": two attributes are called letter

goroutine 1 [running]:
` // … and 60 lines of a stack

// The reasons that are given for a plugin that does not start.
func TestPluginsThatDoNotStart(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	stack := ""
	for i := range 60 {
		stack += fmt.Sprintf("frame %d\n", i)
	}
	for name, c := range map[string]struct {
		before string
		within time.Duration
		want   []string
		not    string
	}{
		"os.Exit": {"echo no model >&2\nexit 3", deadline,
			[]string{"ended before the handshake (exit status 3)", "sdk.Serve", "no model"}, ""},
		"exit, in stdout": {"echo no model\nexit 3", deadline, []string{"exit status 3", "no model"}, ""},
		"killed":          {"kill -9 $$", deadline, []string{"signal: killed"}, ""},
		"panic": {goPanic + stack + "END\nexit 2", deadline,
			[]string{"exit status 2", `panic: sdk: environment "ticker": two attributes are called letter`, "frame 0\n",
				"more lines of the stack"}, "frame 59"},
		"no handshake": {"echo hello\nsleep 600", 15 * time.Second, // a busy machine may take seconds until hello
			[]string{"its process started but did not complete the handshake", "sdk.Serve", "hello"}, ""},
		"exit, on both": {"echo no model\necho Killed >&2\nexit 137", deadline,
			[]string{"exit status 137", "no model\nKilled"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := spec(dir)
			s.Command = []string{shell(t, c.before)}
			if err := os.WriteFile(filepath.Join(dir, host.Stderr), []byte("what an earlier process said\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), c.within)
			defer cancel()
			p, err := host.Launch(ctx, s)
			if err == nil {
				p.Release()
				t.Fatal("it started")
			}
			for _, want := range append(c.want, filepath.Join(dir, host.Stderr)) {
				if !strings.Contains(err.Error(), want) &&
					!(name == "killed" && want == filepath.Join(dir, host.Stderr)) {
					t.Errorf("%q is missing in\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "earlier process") ||
				(c.not != "" && strings.Contains(err.Error(), c.not)) {
				t.Errorf("the error tells what does not belong to it:\n%v", err)
			}
			// To read its schema a plugin runs in a temporary folder that is then deleted: no message may name a file in it.
			if c.within < deadline {
				return
			}
			catalog, err := host.NewCatalog(nil, map[string]string{"ticker": s.Command[0]}, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			_, err = catalog.Lookup("environment", "ticker")
			if err == nil || !strings.Contains(err.Error(), c.want[0]) ||
				strings.Contains(err.Error(), "has all of it") {
				t.Errorf("asked for its schema: %v", err)
			}
		})
	}
}

// A library that prints a banner, with or without a line break at its end, does not keep a plugin from starting.
func TestABannerBeforeTheHandshake(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"lines": "echo hello\necho; echo 1 of 2",
		"no end of line": "printf hello"} {
		dir := t.TempDir()
		s := spec(dir)
		s.Command = []string{shell(t, before)}
		ctx := contextOf(t)
		out := host.NewOutput(dir)
		p, err := host.Launch(ctx, s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var lines []host.OutputLine
		out.Next(false, func(l host.OutputLine) { lines = append(lines, l) })
		if name == "lines" && !reflect.DeepEqual(lines, []host.OutputLine{{Stream: host.Stdout, Text: "hello"},
			{Stream: host.Stdout, Text: "1 of 2"}}) {
			t.Errorf("%s: it printed %v", name, lines)
		}
		if err := p.Exit(ctx); err != nil {
			t.Error(err)
		}
	}
}

// The engine that started a process knows its exit status.
func TestHowAPluginEnded(t *testing.T) {
	t.Parallel()
	p := launch(t, t.TempDir(), nil)
	ctx := contextOf(t)
	if how := p.Ended(); how != "" {
		t.Errorf("a process that runs has ended with %q", how)
	}
	dir := t.TempDir()
	q := launch(t, dir, nil)
	// it may end before it has answered
	_ = q.Start(ctx, start(dir, map[string]cty.Value{"behave": cty.StringVal("exit")}))
	select {
	case <-q.Exited():
	case <-ctx.Done():
		t.Fatal("it did not end")
	}
	if how := q.Ended(); how != "exit status 3" {
		t.Errorf("it has ended with %q, want exit status 3", how)
	}
	if last := host.LastLines(dir, 20); len(last) == 0 || last[len(last)-1] != "the model is too large" {
		t.Errorf("its last lines are %q", last)
	}
}

// Each line is logged once, whole, by one engine or the next.
func TestOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	next := func(o *host.Output, ended bool, want ...string) {
		t.Helper()
		var got []string
		o.Next(ended, func(l host.OutputLine) { got = append(got, l.Stream+" "+l.Text) })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	}
	add(host.Stderr, "of an earlier process\n")
	o := host.NewOutput(dir)
	next(o, false)
	add(host.Stdout, "1|1|unix|/tmp/x|grpc|abc\nhel")
	add(host.Stderr, "one\ntwo\r\n\n")
	next(o, false, "stderr one", "stderr two")
	add(host.Stdout, "lo\n"+strings.Repeat("é", 8192)+"\n")
	next(o, false, "stdout hello", "stdout "+strings.Repeat("é", 4096)+" …")
	add(host.Stderr, "three\n")
	o = host.ResumeOutput(dir) // another engine
	next(o, false, "stderr three")
	add(host.Stdout, "the end")
	next(o, false)
	next(o, true, "stdout the end")
	if err := os.Truncate(filepath.Join(dir, host.Stdout), 0); err != nil {
		t.Fatal(err)
	}
	add(host.Stdout, "anew\n")
	next(o, false, "stdout anew")
}

// A plugin that prints without end does not fill the disk. When it ends, only the end of its output is read.
func TestOutputWithoutEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, host.Stdout)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // as the process has it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	add := func(mebibytes int) {
		t.Helper()
		for range mebibytes {
			if _, err := f.WriteString(strings.Repeat(strings.Repeat("x", 1023)+"\n", 1024)); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(ended bool) (lines []string) {
		o := host.ResumeOutput(dir)
		for o.Next(ended, func(l host.OutputLine) { lines = append(lines, l.Text) }) && ended {
		}
		return lines
	}
	host.NewOutput(dir)
	add(65)
	if got := read(false); len(got) != 1 || !strings.Contains(got[0], "65 MiB of its output are left out") {
		t.Errorf("reported %.200q", got)
	}
	for name, want := range map[string]int64{path: 0, path + ".1": 8 << 20} {
		if info, err := os.Stat(name); err != nil || info.Size() != want {
			t.Errorf("%s: %v, %v; want %d bytes", name, info, err, want)
		}
	}
	add(20)
	if got := read(true); len(got) != 1+256 || !strings.Contains(got[0], "20 MiB of its output are left out") {
		t.Errorf("%d lines, the first is %.200q", len(got), got[:1])
	}
	if got := host.LastLines(dir, 2); len(got) != 2 {
		t.Errorf("the last lines are %.200q", got)
	}
}

// A program that is no plugin, and prints without end, is ended before it has filled the disk.
func TestAFloodBeforeTheHandshakeIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := host.Launch(t.Context(), host.LaunchSpec{Kind: kind.Environment, Name: "flood", RunID: "run",
		Block: "environment.flood.a", Command: []string{"sh", "-c", "exec yes a line >&2"}, Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB before its handshake") {
		t.Errorf("%.300v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, host.Stderr)); err != nil || info.Size() > 64<<20 {
		t.Errorf("stderr: %v, %v", info, err)
	}
}

// The file in which output is kept may be a second name of another file, as in a run directory of somebody else: that
// one stays as it is.
func TestShortenedOutputChangesNoOtherFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{host.Stdout, host.Stdout + ".1"} {
		dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(other, []byte("own"), 0o600); err != nil {
			t.Fatal(err)
		}
		if name == host.Stdout {
			if err := os.Truncate(other, 65<<20); err != nil {
				t.Fatal(err)
			}
		} else if f, err := os.Create(filepath.Join(dir, host.Stdout)); err != nil ||
			f.Truncate(65<<20) != nil || f.Close() != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(other)
		if err == nil {
			err = os.Link(other, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
		host.ResumeOutput(dir).Next(false, func(host.OutputLine) {})
		after, err := os.Stat(other)
		if err != nil || after.Size() != before.Size() || after.ModTime() != before.ModTime() {
			t.Errorf("%s: the other file is changed: %v, %v", name, after, err)
		}
	}
}
