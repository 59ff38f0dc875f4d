package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS keeps groups in a NATS cluster with JetStream, for runs that outgrow one machine's disk: a replicated stream
// survives the loss of a server. Bodies are messages of one stream, and a second stream is the journal of changes: a
// change has happened when its journal message is acknowledged. What each server does with its disk is the cluster's
// setting (sync_interval: always for the promise that a power cut loses nothing on a single server).
type NATS struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	name    string
	bodies  jetstream.Stream
	journal jetstream.Stream

	mu      sync.Mutex
	pending []submission
	closed  bool
	wake    chan struct{}
	done    chan struct{}
	ctx     context.Context // ends the committer's waiting when the store is closed in spite of an unreachable cluster
	cancel  context.CancelCauseFunc

	indexMu sync.RWMutex
	index   map[uint64]kept // by id

	// Only Scan and the committer use what follows.
	state   json.RawMessage
	batches map[uint64]Batch
	lastID  uint64
	keys    []Key  // the oldest first
	last    uint64 // sequence of the newest journal message
	since   int    // journal messages since the last snapshot
	broken  error
}

// kept is where a group's body is, and what the journal says about it.
type kept struct {
	Seq  uint64 `json:"seq"`
	Meta Meta   `json:"meta"`
}

var _ Store = (*NATS)(nil)

// giveUp is how long a commit goes on trying while the cluster cannot be reached or elects a leader.
const giveUp = time.Minute

// OpenNATS connects to a cluster: nats://host:4222,nats://host2:4222?name=run&replicas=3. The name (default "recipe")
// tells several queues in one cluster apart; replicas defaults to the number of servers named, at most 3.
func OpenNATS(ctx context.Context, address string) (*NATS, error) {
	servers, options, err := parseNATS(address)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(strings.Join(servers, ","), nats.Name("recipe trajectories"), nats.MaxReconnects(-1),
		nats.ReconnectWait(200*time.Millisecond), nats.Timeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connecting to the NATS cluster %s: %w; is it running, and is JetStream enabled?", redactNATS(servers), err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("using JetStream of %s: %w", redactNATS(servers), err)
	}
	n := &NATS{conn: conn, js: js, name: options.name, index: map[uint64]kept{}, batches: map[uint64]Batch{},
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if n.bodies, err = n.stream(ctx, "bodies", options.replicas); err == nil {
		n.journal, err = n.stream(ctx, "journal", options.replicas)
	}
	if err != nil {
		n.cancel(err)
		conn.Close()
		return nil, err
	}
	go n.commits()
	return n, nil
}

type natsOptions struct {
	name     string
	replicas int
}

func parseNATS(address string) (servers []string, o natsOptions, err error) {
	list, query, _ := strings.Cut(address, "?")
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), "/"); s != "" {
			servers = append(servers, s)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, o, fmt.Errorf("the NATS store's options %q: %w", query, err)
	}
	o = natsOptions{name: "recipe", replicas: min(3, len(servers))}
	if v := values.Get("name"); v != "" {
		o.name = v
	}
	if v := values.Get("replicas"); v != "" {
		if o.replicas, err = strconv.Atoi(v); err != nil || o.replicas < 1 || o.replicas > 5 {
			return nil, o, fmt.Errorf("the NATS store's replicas are %q, expected 1 to 5", v)
		}
	}
	if strings.ContainsAny(o.name, " .*>/\\\t\r\n") {
		return nil, o, fmt.Errorf("the NATS store's name is %q, expected one without spaces, dots, stars and slashes", o.name)
	}
	return servers, o, nil
}

// redactNATS leaves out passwords.
func redactNATS(servers []string) string {
	out := make([]string, len(servers))
	for i, s := range servers {
		out[i] = s
		if u, err := url.Parse(s); err == nil {
			out[i] = u.Redacted()
		}
	}
	return strings.Join(out, ",")
}

func (n *NATS) subject(part string) string { return n.name + ".trajectories." + part }

func (n *NATS) stream(ctx context.Context, part string, replicas int) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	for ctx.Err() == nil { // a cluster that has just started has no leader yet
		attempt, done := context.WithTimeout(ctx, 3*time.Second)
		s, err := n.js.CreateOrUpdateStream(attempt, jetstream.StreamConfig{
			Name: n.name + "-trajectories-" + part, Subjects: []string{n.subject(part)}, Storage: jetstream.FileStorage,
			Replicas: replicas, AllowDirect: true, Duplicates: 2 * giveUp, Description: "groups of a recipe run; see recipe trajectories",
		})
		done()
		if err == nil {
			return s, nil
		}
		last = err
		var api *jetstream.APIError
		if errors.As(err, &api) && api.Code == 400 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil, fmt.Errorf("creating the JetStream stream for the %s of trajectories with %d replicas: %w", part, replicas, last)
}

// Submit queues a change for the next commit.
func (n *NATS) Submit(c Change) *Ticket {
	t := newTicket()
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		t.resolve(errClosed)
		return t
	}
	n.pending = append(n.pending, submission{c, t})
	n.mu.Unlock()
	n.poke()
	return t
}

func (n *NATS) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *NATS) commits() {
	defer close(n.done)
	for range n.wake {
		for {
			n.mu.Lock()
			k := min(len(n.pending), maxCommit)
			work := n.pending[:k:k]
			n.pending = n.pending[k:]
			closed := n.closed
			n.mu.Unlock()
			if k == 0 {
				if closed {
					return
				}
				break
			}
			n.commit(work)
		}
	}
}

// Body fetches a body from whichever server has it.
func (n *NATS) Body(ctx context.Context, id uint64, dst []byte) ([]byte, error) {
	n.indexMu.RLock()
	k, ok := n.index[id]
	n.indexMu.RUnlock()
	if !ok {
		return dst, fmt.Errorf("group %d: %w", id, ErrNotFound)
	}
	var msg *jetstream.RawStreamMsg
	err := n.retry(ctx, func(ctx context.Context) (err error) {
		msg, err = n.bodies.GetMsg(ctx, k.Seq)
		return err
	})
	if err != nil {
		return dst, fmt.Errorf("reading group %d from the NATS cluster: %w", id, err)
	}
	return append(dst, msg.Data...), nil
}

// retry repeats what fails while a cluster changes its leader.
func (n *NATS) retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(attempt)
		done()
		if err == nil || permanent(err) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the NATS cluster did not answer within %s: %w", giveUp, err)
		}
	}
}

// permanent says whether an answer will not change by asking again.
func permanent(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code == 400 || api.Code == 404
	}
	return errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed)
}

// Close commits what was submitted and leaves the cluster. When the cluster cannot be reached it gives up after a
// minute.
func (n *NATS) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.mu.Unlock()
	n.poke()
	<-n.done
	n.cancel(errClosed)
	n.conn.Close()
	return nil
}
