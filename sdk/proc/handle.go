package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Handle finds a program again after the plugin that started it has died. It holds nothing secret.
type Handle struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // also its process group
	// when it was started, in the system's own unit; tells it from a later process of that pid
	Start   uint64 `json:"start"`
	Session int    `json:"session"`         // the session of the plugin that started it
	Boot    string `json:"boot"`            // of the machine: after a reboot nothing is alive
	Mark    string `json:"mark"`            // carried in the environment of everything it starts
	Log     string `json:"log"`             // its log file
	Ports   []int  `json:"ports,omitempty"` // where it listens
	Data    string `json:"data,omitempty"`  // whatever else the plugin wants to know again
}

// record is how handles are written: the form that the engine understands inside a block's handle.
type record struct {
	Programs []Handle `json:"programs"`
}

// Encode writes handles for Host.SetHandle.
func Encode(handles ...Handle) []byte {
	data, err := json.Marshal(record{Programs: handles})
	if err != nil { // strings and numbers always encode
		panic(err)
	}
	return data
}

// Parse reads what Encode wrote; nil when the handle is something else.
func Parse(data []byte) []Handle {
	var r record
	if len(data) == 0 || json.Unmarshal(data, &r) != nil {
		return nil
	}
	return r.Programs
}

// Alive says whether the program of this handle still runs. A process without the handle's mark is another program:
// handles lie in the run directory, which another program may have written.
func (h Handle) Alive() bool { return h.Boot == BootID() && Same(h.PID, h.Start) && h.leads() }

// leads reports whether the process with the handle's pid, which started when the handle says, carries its mark.
func (h Handle) leads() bool {
	return h.carried(h.PID)
}

// carried says whether a process carries the mark. One that has written its title over its environment may not show it
// any more: then its output must be the handle's log.
func (h Handle) carried(pid int) bool {
	if h.Mark == "" {
		return false
	}
	switch carries(pid, markName+"="+h.Mark) {
	case yes:
		return true
	case unknown:
		return writes(pid, h.Log)
	}
	return false
}

// Same reports whether the process with this pid is the one that started at the given moment (see StartOf), and runs.
func Same(pid int, start uint64) bool {
	if pid <= 0 || start == 0 {
		return false
	}
	info, err := lookup(pid)
	return err == nil && info.start == start && !info.dead
}

// StartOf returns when a process was started, in the system's own unit (clock ticks since boot, microseconds since
// 1970).
func StartOf(pid int) (uint64, error) {
	info, err := lookup(pid)
	if err != nil {
		return 0, fmt.Errorf("look up pid %d: %w", pid, err)
	}
	return info.start, nil
}

// process is what the system reports about one process.
type process struct {
	pid, parent, group, session int
	start                       uint64
	dead                        bool // has ended, but nobody has waited for it
}

// family lists what belongs to the program now.
func (h Handle) family() []process {
	if h.Boot != BootID() {
		return nil
	}
	all, err := processes()
	if err != nil {
		return nil
	}
	leader, alive := all[h.PID]
	if alive && leader.start != h.Start {
		alive = false // another process has that pid, so the program's group is empty: a group's id is not given away
	}
	stranger := !alive && leader.pid == h.PID
	if alive && !leader.dead && !h.leads() {
		alive, stranger = false, true
	}
	marked := map[int]bool{}
	group := alive && !leader.dead // else one that carries the mark proves that the group is the program's
	for _, p := range all {
		if h.Mark == "" || p.dead {
			continue
		}
		marked[p.pid] = told && h.carried(p.pid)
		group = group || p.group == h.PID && p.session == h.Session && h.carried(p.pid)
	}
	var family []process
	for _, p := range all {
		switch {
		case p.dead || p.pid == os.Getpid():
		case p.pid == h.PID && alive,
			!stranger && group && p.group == h.PID && p.session == h.Session,
			alive && descends(all, p, h.PID),
			marked[p.pid]:
			family = append(family, p)
		}
	}
	return family
}

// verdict reports whether a process belongs to the program.
type verdict int

const (
	no verdict = iota
	yes
	unknown // its environment cannot be read, or was overwritten
)

// descends reports whether p has the given ancestor.
func descends(all map[int]process, p process, ancestor int) bool {
	for range len(all) {
		if p.parent == ancestor {
			return true
		}
		next, ok := all[p.parent]
		if !ok || p.parent <= 1 {
			return false
		}
		p = next
	}
	return false
}

func (h Handle) signal(sig syscall.Signal) error {
	var errs []error
	for _, p := range h.family() {
		errs = append(errs, signalSame(p, sig))
	}
	return errors.Join(errs...)
}

// signalLeader signals the program without what it has started.
func (h Handle) signalLeader(sig syscall.Signal) error {
	if h.Boot != BootID() {
		return nil
	}
	return signalSame(process{pid: h.PID, start: h.Start}, sig)
}

// signalRest sends SIGTERM to what an ended program has left behind and waits for its end, until the context ends.
func (h Handle) signalRest(ctx context.Context, known []process) {
	asked := map[int]bool{}
	for {
		left := append(h.family(), stillThere(known)...)
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			if !asked[p.pid] {
				asked[p.pid] = true
				_ = signalSame(p, syscall.SIGTERM)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(killPoll):
		}
	}
}

// signalSame signals a process unless its pid has been given to another one. One that has ended meanwhile is fine.
func signalSame(p process, sig syscall.Signal) error {
	if !Same(p.pid, p.start) {
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to pid %d: %w", sig, p.pid, err)
	}
	return nil
}

// KillAll ends the programs of the handles, with everything that they have started, at once. Programs that do not run
// any more are fine. The context bounds the wait for their end.
func KillAll(ctx context.Context, handles []Handle) error {
	var errs []error
	for _, h := range handles {
		if err := killFamily(ctx, h, nil); err != nil {
			errs = append(errs, fmt.Errorf("kill %s (pid %d): %w", h.Name, h.PID, err))
		}
	}
	return errors.Join(errs...)
}

// killPoll is how often it is looked whether the killed have gone.
const killPoll = 10 * time.Millisecond

// killFamily sends SIGKILL until nothing is left: a process may start another one while it is being killed.
func killFamily(ctx context.Context, h Handle, known []process) error {
	for {
		left := append(h.family(), stillThere(known)...)
		if len(left) == 0 {
			return nil
		}
		var errs []error
		for _, p := range left {
			errs = append(errs, signalSame(p, syscall.SIGKILL))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pids %s do not end: %w", pids(left), ctx.Err())
		case <-time.After(killPoll):
		}
	}
}

// Session is that of a plugin process: its leader, when that started, and the mark that it and what it starts carry in
// the environment, written NAME=VALUE.
type Session struct {
	Leader int
	Start  uint64
	Mark   string
}

// Carries says whether the process with this pid carries an entry of the environment, NAME=VALUE. Where the system does
// not report it (macOS), it is assumed to.
func Carries(pid int, entry string) bool { return !told || carries(pid, entry) == yes }

// KillSession ends every process of a session, the way to end what a dead plugin has left behind, except the programs
// of the handles to keep. A session in which no process carries the mark is another's and is left alone: the session's
// id is not given to another one while a process is in it, but the record of it may be wrong.
func KillSession(ctx context.Context, s Session, keep ...Handle) error {
	if s.Leader <= 1 {
		return fmt.Errorf("kill session %d: not the session of a plugin", s.Leader)
	}
	proved := false
	for {
		all, err := processes()
		if err != nil {
			return fmt.Errorf("kill session %d: %w", s.Leader, err)
		}
		if p, ok := all[s.Leader]; ok && p.start != s.Start {
			return nil
		}
		if proved = proved || s.ours(all); !proved {
			return nil
		}
		kept := map[int]bool{os.Getpid(): true}
		for _, h := range keep {
			for _, p := range h.family() {
				kept[p.pid] = true
			}
		}
		var left []process
		for _, p := range all {
			if p.session == s.Leader && !p.dead && !kept[p.pid] {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			if err := signalSame(p, syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill session %d: %w", s.Leader, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill session %d: pids %s do not end: %w", s.Leader, pids(left), ctx.Err())
		case <-time.After(killPoll):
		}
	}
}

// KillMarked ends the sessions of all processes that carry a mark, written NAME=VALUE. It is for processes of which
// nothing else is known. Where the system does not report it (macOS), none is found.
func KillMarked(ctx context.Context, mark string) error {
	if !told {
		return nil
	}
	all, err := processes()
	if err != nil {
		return fmt.Errorf("look for the processes that carry a mark: %w", err)
	}
	sessions := map[int]bool{}
	for _, p := range all {
		if !p.dead && p.session > 1 && carries(p.pid, mark) == yes {
			sessions[p.session] = true
		}
	}
	for leader := range sessions {
		if err := KillSession(ctx, Session{Leader: leader, Start: all[leader].start, Mark: mark}); err != nil {
			return err
		}
	}
	return nil
}

// ours reports whether a process of the session carries its mark.
func (s Session) ours(all map[int]process) bool {
	if s.Mark == "" {
		return false
	}
	for _, p := range all {
		if p.session == s.Leader && !p.dead && Carries(p.pid, s.Mark) {
			return true
		}
	}
	return false
}

func stillThere(known []process) []process {
	var left []process
	for _, p := range known {
		if Same(p.pid, p.start) {
			left = append(left, p)
		}
	}
	return left
}

func pids(list []process) string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = fmt.Sprint(p.pid)
	}
	return strings.Join(names, ", ")
}
