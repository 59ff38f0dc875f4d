package store

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startNATS runs a NATS server with JetStream in this process, alone or as a member of a cluster.
func startNATS(t testing.TB, name, dir string, routes []int, member int) *server.Server {
	t.Helper()
	o := &server.Options{ServerName: name, Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, SyncAlways: true,
		MaxPayload: 8 << 20, NoLog: true, NoSigs: true, JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 26}
	if routes != nil {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: routes[member]}
		var all []string
		for _, port := range routes {
			all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", port))
		}
		o.Routes = server.RoutesFromStr(strings.Join(all, ","))
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server did not start within 20 s")
	}
	return s
}

func TestNATS(t *testing.T) {
	t.Parallel()
	s := startNATS(t, "one", t.TempDir(), nil, 0)
	contract(t, func() Store {
		n, err := OpenNATS(t.Context(), s.ClientURL()+"?name=run")
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
}

func TestNATSSnapshotsAndForgetsWhatIsOver(t *testing.T) {
	t.Parallel()
	srv := startNATS(t, "one", t.TempDir(), nil, 0)
	open := func() *NATS {
		n, err := OpenNATS(t.Context(), srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open()
	scan(t, n)
	for id := uint64(1); id <= 30; id++ {
		commit(t, n, Change{Put: []Entry{entry(id, 100)}})
	}
	commit(t, n, Change{End: []uint64{1, 2, 3}})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open() // this writes the snapshot
	scan(t, n)
	info, err := n.journal.Info(t.Context())
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("after opening the journal has %d messages (%v), expected one snapshot", info.State.Msgs, err)
	}
	if info, err = n.bodies.Info(t.Context()); err != nil || info.State.Msgs != 27 {
		t.Errorf("there are %d bodies (%v), expected 27", info.State.Msgs, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open()
	if c := scan(t, n); len(c.groups) != 27 || c.LastID != 30 {
		t.Errorf("from the snapshot come %d groups and id %d", len(c.groups), c.LastID)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNATSTellsASecondWriter(t *testing.T) {
	t.Parallel()
	srv := startNATS(t, "one", t.TempDir(), nil, 0)
	var both [2]*NATS
	for i := range both {
		n, err := OpenNATS(t.Context(), srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		scan(t, n)
		both[i] = n
		defer func() { _ = n.Close() }()
	}
	commit(t, both[0], Change{Put: []Entry{entry(1, 10)}})
	if err := try(t, both[1], Change{Put: []Entry{entry(1, 10)}}); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("the second writer is told %v", err)
	}
	commit(t, both[0], Change{Put: []Entry{entry(2, 10)}})
}

// TestNATSClusterLosesAServer kills one of three servers, the one that leads the journal, in the middle of the work.
func TestNATSClusterLosesAServer(t *testing.T) {
	t.Parallel()
	var ports []int
	for range 3 {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		_ = ln.Close()
	}
	dir := t.TempDir()
	servers := map[string]*server.Server{}
	var urls []string
	for i := range 3 {
		name := fmt.Sprint("s", i)
		s := startNATS(t, name, filepath.Join(dir, name), ports, i)
		servers[name] = s
		urls = append(urls, s.ClientURL())
	}
	n, err := OpenNATS(t.Context(), strings.Join(urls, ",")+"?replicas=3")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	scan(t, n)
	info, err := n.journal.Info(t.Context())
	if err != nil || info.Config.Replicas != 3 || info.Cluster.Leader == "" {
		t.Fatalf("the journal is %+v, %v; expected three replicas with a leader", info, err)
	}
	var tickets []*Ticket
	for id := uint64(1); id <= 60; id++ {
		tickets = append(tickets, n.Submit(Change{Put: []Entry{entry(id, 20_000)}}))
		if id == 20 {
			if err := tickets[10].Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			servers[info.Cluster.Leader].Shutdown()
		}
	}
	for i, ticket := range tickets {
		if err := ticket.Wait(t.Context()); err != nil {
			t.Fatalf("group %d: %v", i+1, err)
		}
	}
	commit(t, n, Change{End: []uint64{5}})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenNATS(t.Context(), strings.Join(urls, ",")+"?replicas=3")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	c := scan(t, again)
	if len(c.groups) != 59 {
		t.Errorf("%d groups are left of 59 that were acknowledged", len(c.groups))
	}
	for id := uint64(1); id <= 60; id++ {
		if id != 5 {
			holds(t, again, id)
		}
	}
}

func TestParseNATS(t *testing.T) {
	t.Parallel()
	servers, o, err := parseNATS("nats://a:1, nats://u:p@b:2/,nats://c:3,nats://d:4?name=x")
	if err != nil || len(servers) != 4 || o != (natsOptions{"x", 3}) {
		t.Errorf("read %v %+v %v", servers, o, err)
	}
	if text := redactNATS(servers); strings.Contains(text, "p@") {
		t.Errorf("a password is shown: %s", text)
	}
	for _, bad := range []string{"nats://a?replicas=9", "nats://a?name=a.b", "nats://a?%zz"} {
		if _, _, err := parseNATS(bad); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}
