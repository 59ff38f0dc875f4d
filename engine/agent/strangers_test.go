package agent

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"time"
)

// Connections to the port of an agent that say nothing have a bound, and the oldest makes room.
func TestSilentConnectionsToAnAgentAreBounded(t *testing.T) {
	t.Parallel()
	d := newData(&tls.Config{MinVersion: tls.VersionTLS13}, Credentials{})
	var clients []net.Conn
	held := func() int {
		d.strangers.mu.Lock()
		defer d.strangers.mu.Unlock()
		return len(d.strangers.list)
	}
	for n := range StrangersAtOnce + 1 {
		client, server := net.Pipe()
		defer func() { _ = client.Close() }()
		clients = append(clients, client)
		go d.serve(server)
		for deadline := time.Now().Add(time.Minute); n < StrangersAtOnce && held() <= n; {
			if time.Now().After(deadline) {
				t.Fatalf("connection %d is not served", n)
			}
			time.Sleep(time.Millisecond)
		}
	}
	_ = clients[0].SetReadDeadline(time.Now().Add(time.Second))
	if _, err := clients[0].Read(make([]byte, 1)); os.IsTimeout(err) {
		t.Error("the oldest connection keeps its place")
	}
	if n := held(); n > StrangersAtOnce {
		t.Errorf("%d connections are held, expected at most %d", n, StrangersAtOnce)
	}
}
