package weightserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// worksOn is a snapshot of a trainer that goes ahead.
type worksOn struct {
	testSnapshot
	taken chan Taken
	err   error
}

func (w worksOn) Taken(_ context.Context, version int64, maxStaleness *int64) error {
	w.taken <- Taken{version, maxStaleness}
	return w.err
}

// offered makes a server whose trainer offers a snapshot.
func offered(t *testing.T, snapshot Snapshot, change func(*Config), a Attach) (*Server, *Publication, <-chan error) {
	t.Helper()
	s := testServer(change)
	a.Address, a.Every = "sync.s.a", 1
	if err := s.attach(a); err != nil {
		t.Fatal(err)
	}
	synced := make(chan error, 1)
	go func() {
		_, err := s.Sync(t.Context(), 1, snapshot)
		synced <- err
	}()
	p := s.next(t.Context(), 0, 10*time.Second)
	if p == nil {
		t.Fatal("nothing is offered")
	}
	return s, p, synced
}

func TestATrainerThatGoesAheadIsTold(t *testing.T) {
	t.Parallel()
	told := 0
	w, limit := worksOn{taken: make(chan Taken, 1)}, int64(3)
	s, p, synced := offered(t, w, func(c *Config) { c.Taken = func() { told++ } }, Attach{})
	if !p.Ahead {
		t.Fatalf("offered %+v, which does not say ahead", p)
	}
	if err := s.taken(t.Context(), Taken{Version: 1, MaxStaleness: &limit}); err != nil {
		t.Fatal(err)
	}
	if got := <-w.taken; got.Version != 1 || *got.MaxStaleness != 3 || told != 1 {
		t.Errorf("the trainer was told %+v, its host %d times", got, told)
	}
	if s.Version() != 0 {
		t.Error("the version rose before inference serves it")
	}
	// A sync block that is started again begins the update anew.
	if again := s.next(t.Context(), 0, time.Second); again == nil || *again != *p {
		t.Errorf("then %+v is offered", again)
	}
	if err := s.call(1, func(Snapshot) error { return nil }); err != nil {
		t.Error(err)
	}
	select {
	case err := <-synced:
		t.Fatalf("Sync returned: %v", err)
	default:
	}
	if err := s.done(Done{Version: 1}); err != nil || <-synced != nil || s.Version() != 1 {
		t.Errorf("%v; version %d", err, s.Version())
	}
	if err := s.taken(t.Context(), Taken{Version: 1}); err == nil {
		t.Error("it may be told so after Sync has returned")
	}
}

func TestATrainerIsNotToldWhatItDidNotAskFor(t *testing.T) {
	t.Parallel()
	s, p, _ := offered(t, testSnapshot{}, nil, Attach{})
	if err := s.taken(t.Context(), Taken{Version: 1}); p.Ahead || err == nil || !strings.Contains(err.Error(), "ahead") {
		t.Errorf("a trainer that waits: ahead %t, %v", p.Ahead, err)
	}
	w := worksOn{taken: make(chan Taken, 1), err: errors.New("it has died")}
	s, p, _ = offered(t, w, nil, Attach{})
	if err := s.taken(t.Context(), Taken{Version: 2}); !p.Ahead || err == nil || len(w.taken) > 0 {
		t.Errorf("another version than the one that is offered: %v", err)
	}
	if err := s.taken(t.Context(), Taken{Version: 1}); err == nil || err.Error() != "it has died" {
		t.Errorf("one that could not be told: %v", err)
	}
	if _, p, _ = offered(t, w, nil, Attach{Colocated: true}); p.Ahead {
		t.Error("where they take turns on a GPU the trainer goes ahead")
	}
}
