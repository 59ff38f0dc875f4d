package harness

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
)

// A pin waits for an update that had begun before it. Afterwards no answer is no other version, but for the last check,
// and another version is an error.
//
//docs:evaluation.md Programs of others
func TestPin(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	version, held, away := 3, 2, false // held: how many answers still report an update
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case away:
			http.Error(w, "away", http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Path, "/keep"):
			_ = json.NewEncoder(w).Encode(gateway.Kept{Version: version})
		case held > 0:
			if held--; held == 0 {
				version = 4
			}
			_ = json.NewEncoder(w).Encode(gateway.Status{Held: true})
		default:
			_ = json.NewEncoder(w).Encode(gateway.Status{})
		}
	}))
	t.Cleanup(server.Close)
	p, err := NewPin(t.Context(), server.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if p.Version() != 4 {
		t.Errorf("the pinned version is %d, expected that of the update which had begun, 4", p.Version())
	}
	set := func(v int, gone bool) {
		mu.Lock()
		defer mu.Unlock()
		version, away = v, gone
	}
	for _, c := range []struct {
		name    string
		version int
		away    bool
		last    bool
		want    string // in the error; empty: none
	}{
		{"the same version", 4, false, true, ""},
		{"no answer while the lease lasts", 4, true, false, ""},
		{"no answer at the end", 4, true, true, "keep the policy version"},
		{"another version", 5, false, false, "changed from version 4 to 5"},
	} {
		set(c.version, c.away)
		err := p.check(t.Context(), c.last)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
	if err := (*Pin)(nil).check(t.Context(), true); err != nil {
		t.Errorf("without a pin: %v", err)
	}
}
