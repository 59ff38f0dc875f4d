package main

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/plugins/trajectories/tools"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// squatter is another user of the machine, who listens on a port as soon as it is free and keeps what is sent to it.
type squatter struct {
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	listens bool
	clients int
	got     bytes.Buffer
	failed  error
}

func squat(t *testing.T, address string) *squatter {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	s := &squatter{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			s.failed = errno
			return
		}
		s.work(&unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	}()
	t.Cleanup(s.leave)
	return s
}

func (s *squatter) leave() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	<-s.done
}

// work listens once the port is free, and reads from every client for a moment. All sockets are of this thread's user.
func (s *squatter) work(at *unix.SockaddrInet4) {
	listener := -1
	for ; ; time.Sleep(time.Millisecond) {
		select {
		case <-s.stop:
			if listener >= 0 {
				_ = unix.Close(listener)
			}
			return
		default:
		}
		if listener < 0 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				s.failed = err
				return
			}
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			if unix.Bind(fd, at) != nil || unix.Listen(fd, 64) != nil {
				_ = unix.Close(fd)
				continue
			}
			listener = fd
			s.mu.Lock()
			s.listens = true
			s.mu.Unlock()
		}
		client, _, err := unix.Accept(listener)
		if err != nil {
			continue
		}
		limit := unix.NsecToTimeval((200 * time.Millisecond).Nanoseconds())
		_ = unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
		buffer := make([]byte, 4096)
		n, _ := unix.Read(client, buffer)
		_ = unix.Close(client)
		s.mu.Lock()
		s.clients++
		s.got.Write(buffer[:max(n, 0)])
		s.mu.Unlock()
	}
}

func (s *squatter) seen() (listens bool, clients int, got string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens, s.clients, s.got.String()
}

// Another user waits for the ports of a run: they are not free while a block is restarted, whatever ended it. When they
// are, because everything was killed, clients send nothing to the new owner, and follow the block to its new place.
func TestSquatterGetsNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	w := newWorkshop(t)
	store := addr.Block{Kind: kind.Trajectories, Plugin: "builtin", Name: "default"}
	w.recipe("apply", "-y", "--detach", "--var", "steps=1000000", "quickstart.hcl")
	processes := w.awaitProcesses(5, nil)
	eventually(t, "the trainer trains", func() bool { return w.trained() > 0 })
	port := w.record().Blocks[store].Listen
	key := func() string {
		token, err := state.DirOf(w.dir, "quickstart").Token("data", store, w.record().Blocks[store].Renewals)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	before := key()
	s := squat(t, port)

	w.recipe("restart", store.String())
	processes = w.awaitProcesses(5, func(now map[string]int) bool {
		return now[store.String()] != processes[store.String()]
	})
	step := w.trained()
	eventually(t, "training goes on after the restart", func() bool { return w.trained() > step+5 })
	if err := syscall.Kill(processes[store.String()], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	processes = w.awaitProcesses(5, func(now map[string]int) bool {
		return now[store.String()] != processes[store.String()]
	})
	step = w.trained()
	eventually(t, "training goes on after the kill", func() bool { return w.trained() > step+5 })
	if listens, _, _ := s.seen(); listens {
		t.Fatal("another user listens on the port of a live run")
	}
	if after := key(); after != before || w.record().Blocks[store].Listen != port {
		t.Error("a block whose port was kept has another token or port")
	}

	engine := state.Holder(state.DirOf(w.dir, "quickstart"))
	if engine == nil {
		t.Fatal("no engine works on the run")
	}
	for _, pid := range []int{engine.PID, processes[store.String()]} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "clients connect to the other user", func() bool { _, clients, _ := s.seen(); return clients > 0 })
	w.recipe("apply", "-y", "--detach", "--var", "steps=1000000", "quickstart.hcl")
	w.awaitProcesses(5, func(now map[string]int) bool {
		return now["environment.arithmetic.sums"] != processes["environment.arithmetic.sums"]
	})
	step = w.trained()
	eventually(t, "training goes on at another port", func() bool { return w.trained() > step+5 })
	if after := key(); after == before {
		t.Error("the token that clients had when another user listened is still valid")
	}
	if w.record().Blocks[store].Listen == port {
		t.Errorf("the block listens on %s, which another user has", port)
	}
	s.leave()
	if _, clients, got := s.seen(); got != "" || s.failed != nil {
		t.Errorf("%d clients sent %.300q to another user (%v)", clients, got, s.failed)
	}
	var left []string
	if files, err := filepath.Glob(filepath.Join(w.dir, ".recipe", "quickstart", "blocks", "*", "stderr")); err == nil {
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(before)) {
				left = append(left, file)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("the token is in %v", left)
	}
}

// Without --url or a run, commands ask the port of run-api, which any user of the machine can take.
func TestTheAssumedAPIIsOfThisUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	t.Chdir(t.TempDir())
	target, err := (&targetFlags{}).find()
	if err != nil || !target.Assumed {
		t.Fatalf("the target is %+v, %v; expected an assumed one", target, err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	theirs := squat(t, address)
	eventually(t, "the other user listens", func() bool { listens, _, _ := theirs.seen(); return listens })
	target.URL = "http://" + address
	err = tools.Replay(t.Context(), tools.ReplayOptions{Target: target}, strings.NewReader("{}\n"), &bytes.Buffer{})
	var refused *peer.Error
	if !errors.As(err, &refused) {
		t.Errorf("replay: %v, expected a refusal of the other user's server", err)
	}
	if _, _, got := theirs.seen(); got != "" {
		t.Errorf("the other user got %q", got)
	}
}
