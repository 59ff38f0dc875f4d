package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/loopback"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// given are the GPUs of a block. Those of a cluster's job are known in the job only: the cluster names them in
// CUDA_VISIBLE_DEVICES, or lets no others be seen. On several machines each has its own, which this process does not
// know.
func given(p sdk.Placement) []string {
	if len(p.Devices) > 0 || p.Executor == "" || p.GPUs == 0 || len(nodes.Addresses()) > 1 {
		return p.Devices
	}
	if named := os.Getenv("CUDA_VISIBLE_DEVICES"); named != "" {
		return strings.Split(named, ",")
	}
	all := make([]string, p.GPUs)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}

// devices are the GPUs of this replica out of those of the block; nil leaves the choice to the program.
func (r *replica) devices() []string {
	n, all := r.s.spec.Parallel.GPUs(), r.s.block.Devices
	if len(all) < n {
		return nil
	}
	from := (r.index * n) % len(all)
	if from+n > len(all) { // more replicas than GPUs: they share
		from = 0
	}
	return all[from : from+n]
}

// visible is devices, and those that it may copy weights from. A program takes the first ones for itself.
func (r *replica) visible() []string {
	own := r.devices()
	if own == nil {
		return nil
	}
	for _, d := range r.s.spec.PeerDevices {
		if !slices.Contains(own, d) {
			own = append(slices.Clone(own), d)
		}
	}
	return own
}

// key is the server's API key: the same in every attempt of the block, so that a server can be taken over, and never
// written down.
func (r *replica) key() string {
	mac := hmac.New(sha256.New, []byte(r.s.block.ControlToken))
	_, _ = mac.Write([]byte(r.s.spec.Slug + " " + r.id))
	return hex.EncodeToString(mac.Sum(nil))[:32]
}

// fingerprint identifies the way in which this block would start a server, to compare it with a running one.
func (r *replica) fingerprint() string {
	l := r.launch(0)
	l.Model, l.Tokenizer, l.Environ = r.s.spec.Model, r.s.spec.Tokenizer, nil
	command, err := r.s.program.Command(l)
	if err != nil {
		return "" // matches no server; begin reports the error
	}
	sum := sha256.Sum256([]byte(r.id + "\x00" + strings.Join(command.Argv, "\x00") + "\x00" +
		strings.Join(command.Env, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// claim reports whether the program of an earlier attempt is this replica's and can go on.
func (r *replica) claim(h proc.Handle) bool {
	if r.adopt.PID != 0 || len(h.Ports) != 1 || h.Data == "" || h.Data != r.fingerprint() || !h.Alive() {
		return false
	}
	r.adopt = h
	return true
}

// reserve chooses where the next server will listen, unless that is known already: a weight update that comes while
// the server is being started then waits for it there.
func (r *replica) reserve() (int, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.next == 0 {
		// Most likely it is free on the other machines of the block, too: a server that finds it taken is started again at
		// another one.
		port, err := loopback.FreePort()
		if err != nil {
			return 0, err
		}
		r.next = port
		r.connectLocked(port)
	}
	return r.next, nil
}

// connectLocked makes the client of a server that listens at a port of the replica's machine.
func (r *replica) connectLocked(port int) {
	r.port = port
	if r.forward != nil {
		r.forward.To(port)
		port = r.forward.Port()
	}
	r.address = Address{
		Replica: r.id, Port: port, Key: r.key(), Dir: filepath.Join(r.s.block.Dir, "replica-"+r.id),
		Warn: func(message string) { r.s.host.Log("warn", fmt.Sprintf("replica %s: %s", r.id, message)) },
	}
	r.client = r.s.program.Connect(r.address)
}

// lost reports whether the machine of the replica cannot be reached.
func (r *replica) lost(ctx context.Context) bool {
	if r.node == 0 {
		return false
	}
	c, err := nodes.Dial(ctx, r.node, r.port)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, nodes.ErrAway)
}
