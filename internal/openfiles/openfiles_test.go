package openfiles

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limitKey is set in a process of this test that may have few open files.
const limitKey = "OPENFILES_TEST_LIMIT"

func TestMain(m *testing.M) {
	if os.Getenv(limitKey) != "" {
		if err := useUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// useUp serves in a process whose open files are all in use, closes some after a while, and prints the answer.
func useUp() error {
	const limit = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	log.SetOutput(os.Stdout)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(Wait(l, nil)) }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	if err := answered(client); err != nil {
		return err
	}
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	_ = files[0].Close() // for this side of the connection; there is none for the other
	last, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // several attempts
	for _, f := range files[1:] {
		_ = f.Close()
	}
	return answered(last)
}

func answered(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 404")))
	return err
}

// A server without open files says so once, and answers when there are some again.
func TestAServerWithoutOpenFilesSaysSoOnce(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), limitKey+"=64", "GOCOVERDIR="+filepath.Dir(t.TempDir()))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	const want = "accepts no connections for now: this process may have 64 open files, and has them"
	if n := strings.Count(string(out), want); n != 1 || strings.Count(string(out), "\n") != 1 ||
		!strings.Contains(string(out), "ulimit -n 4096") {
		t.Errorf("it printed\n%swant one line with %q", out, want)
	}
}

func TestTooFew(t *testing.T) {
	t.Parallel()
	if said := TooFew(128, "here"); said != "" {
		t.Errorf("128 files: %q, want nothing", said)
	}
	if said := TooFew(127, "here"); !strings.Contains(said, "may have 127 open files here") {
		t.Errorf("127 files: %q", said)
	}
}
