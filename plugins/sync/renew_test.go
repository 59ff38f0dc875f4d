package sync

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
)

// A gateway that hangs does not keep the leases of the others from being renewed, and the wait for it is bounded.
func TestAGatewayThatHangsCostsNoOtherItsHold(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, renew := range map[string]func(context.Context, map[*server]string){
		"for an update": (&syncer{}).renewAll,
		"while inference sleeps": func(ctx context.Context, held map[*server]string) {
			n := &sleep{holds: map[string]gpuLease{}}
			for v, id := range held {
				n.put(v.address, gpuLease{client: v.client, id: id})
			}
			n.renew(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hangsAmongOthers(t, renew)
		})
	}
}

func hangsAmongOthers(t *testing.T, renew func(context.Context, map[*server]string)) {
	ended, end := context.WithCancel(context.Background())
	asked := make(chan struct{}, 1)
	var givenUp atomic.Int64
	held := map[*server]string{}
	serve := func(name string, f http.HandlerFunc) {
		s := httptest.NewServer(f)
		t.Cleanup(func() { end(); s.CloseClientConnections(); s.Close() })
		v := &server{address: name, client: gateway.NewClient(s.URL, "token")}
		t.Cleanup(v.client.Close)
		held[v] = "hold"
	}
	for i := range 4 {
		serve(fmt.Sprintf("hanging %d", i), func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				givenUp.Add(1)
			case <-ended.Done():
			}
		})
	}
	serve("good", func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_, _ = w.Write([]byte(`{}`))
	})
	returned := make(chan struct{})
	go func() { renew(t.Context(), held); close(returned) }()
	select {
	case <-asked:
		if n := givenUp.Load(); n > 0 {
			t.Errorf("a gateway was asked only after %d others that hang", n)
		}
	case <-time.After(60 * time.Second):
		t.Error("a gateway was not asked because others hang")
	}
	select {
	case <-returned:
	case <-time.After(60 * time.Second):
		t.Error("waited 60 s for gateways that hang")
	}
}
