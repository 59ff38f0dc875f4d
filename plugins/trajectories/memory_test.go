package trajectories

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// serveAlone is set in a child process that is only a server, so that its memory can be measured.
const serveAlone = "TRAJECTORIES_SERVE_ALONE"

// alone runs the child's part; in the child it does not return.
func alone() {
	if os.Getenv(serveAlone) == "" {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		stop()
	}()
	err := Run(ctx, RunOptions{Config: Config{MaxBody: 32 << 20, MaxInflightBytes: 64 << 20}}, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func squeeze(t *testing.T, encoding string, parts ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	if encoding == "gzip" {
		w = gzip.NewWriter(&out)
	} else {
		w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Eight posts of 250 kB, each of which inflates to 250 MB of numbers, once made a server use 6.8 GB.
//
//docs:trajectories.md Bounds
func TestBodiesThatInflateTakeABoundedAmountOfMemory(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the race detector takes several times the memory: go test without -race measures it")
	}
	const inflated = 24 << 20 // each; an exact reader made forty times that of it
	of := func(unit string) string { return strings.Repeat(unit, inflated/len(unit)) }
	ids := "[[" + strings.TrimSuffix(of("1,"), ",") + "]]"
	lists := "[" + strings.TrimSuffix(of("[],"), ",") + "]"
	small := `{"tokens":[[1]],"masks":[[1]],"scores":[1]}`
	bodies := map[string]struct{ path, encoding, text string }{
		"numbers":              {"/scored_data", "gzip", `{"tokens":` + ids + `,"masks":[[1]],"scores":[true]}`},
		"empty lists":          {"/scored_data", "gzip", `{"tokens":` + lists + `,"masks":` + "[[]]" + `,"scores":[1]}`},
		"nested":               {"/scored_data", "gzip", `{"images":` + of("[")},
		"white space":          {"/register", "gzip", of(" ")},
		"numbers as zstd":      {"/scored_data", "zstd", `{"tokens":` + ids + `,"masks":[[1]],"scores":["1"]}`},
		"small groups":         {"/scored_data_list", "gzip", "[" + strings.TrimSuffix(of(small+","), ",") + "]"},
		"small groups as zstd": {"/scored_data_list", "zstd", "[" + strings.TrimSuffix(of(small+","), ",") + "]"},
		"numbers as they are":  {"/scored_data", "", `{"tokens":` + ids + `,"masks":[[1]],"scores":[true]}`},
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), serveAlone+"=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, rest, announced := strings.Cut(line, "http://")
	if !announced {
		t.Fatalf("the server does not say where it listens: %q", line)
	}
	url := "http://" + strings.Fields(rest)[0]
	client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Minute}
	for name, b := range bodies {
		body := []byte(b.text)
		if b.encoding != "" {
			body = squeeze(t, b.encoding, b.text)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+b.path, bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Content-Encoding", b.encoding)
				answer, err := client.Do(r)
				if err != nil {
					if b.encoding != "" { // a large one may be refused before it has been read
						t.Errorf("%s: %v", name, err)
					}
					return
				}
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				switch answer.StatusCode {
				case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusBadRequest,
					http.StatusServiceUnavailable:
				default:
					t.Errorf("%s: answered with %d %s", name, answer.StatusCode, text)
				}
			})
		}
		wg.Wait()
	}
	client.CloseIdleConnections()
	_ = in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	most := child.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS == "linux" {
		most *= 1024
	}
	t.Logf("the server took %d MiB at most", most>>20)
	if limit := int64(800 << 20); most > limit {
		t.Errorf("the server took %d MiB, expected at most %d", most>>20, limit>>20)
	}
}

// A post that finds no free memory waits, and is asked to retry if that lasts.
func TestAPostWithoutMemoryIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxInflightBytes: 1 << 20})
	f.trainer(2)
	other := share{of: f.memory}
	if err := other.begin(t.Context(), 0); err != nil { // more than the limit: all of it
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	late := share{of: f.memory}
	if err := late.begin(soon, 10); err == nil {
		t.Error("memory was given twice")
	}
	done := make(chan int, 1)
	go func() {
		code, _ := f.call("POST", "/scored_data", groupText(1, 2, ""))
		done <- code
	}()
	other.release()
	if code := <-done; code != http.StatusOK {
		t.Errorf("the post that waited is answered with %d, expected 200", code)
	}
	if err := late.begin(t.Context(), 0); err != nil {
		t.Errorf("memory was not given back: %v", err)
	}
	late.release()
}

// Requests that hold memory and need more must never wait for each other.
func TestLargeRequestsDoNotWaitForEachOtherForEver(t *testing.T) {
	t.Parallel()
	m := newMemory(64 << 20)
	var wg sync.WaitGroup
	for i := range largeWait {
		wg.Go(func() {
			s := share{of: m}
			defer s.release()
			if err := s.begin(t.Context(), 0); err != nil {
				t.Error(err)
			}
			for n := int64(firstPart); n < 64<<20; n *= 2 { // above the limit
				if err := s.more(t.Context(), n+int64(i), 0); err != nil {
					t.Errorf("request %d at %d bytes: %v", i, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for name, p := range map[string]part{"small": m.small, "large": m.large} {
		if !p.free.TryAcquire(p.size) {
			t.Errorf("not all %s memory was given back", name)
		}
	}
}

func TestABodyThatInflatesTooFarIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	for _, encoding := range []string{"gzip", "zstd"} {
		body := squeeze(t, encoding, `{"images":"`, strings.Repeat(" ", 64<<20), `"}`)
		code, out := f.call("POST", "/scored_data", string(body), "Content-Encoding", encoding)
		if code != http.StatusRequestEntityTooLarge || !strings.Contains(fmt.Sprint(out),
			"inflates to more than 200 times its size") {
			t.Errorf("%s: answered with %d %v, expected 413", encoding, code, out)
		}
		body = squeeze(t, encoding, `{"wandb_group":"`, strings.Repeat("abc", 1<<20), `"}`)
		if code, out := f.call("POST", "/register", string(body), "Content-Encoding",
			encoding); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: a registration of 3 MiB is answered with %d %v, expected 413", encoding, code, out)
		}
	}
}
