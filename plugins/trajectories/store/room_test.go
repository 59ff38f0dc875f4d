package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// Groups that arrive while the disk is full wait for room and are stored; changes that end groups succeed meanwhile.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestGroupsWaitForRoom(t *testing.T) {
	t.Parallel()
	dir := disktest.Small(t, 24<<20)
	var mu sync.Mutex
	var reported []string
	d, err := OpenDisk(dir+"/store", DiskOptions{Always: true, Wait: time.Hour, Room: func(s string) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	scan(t, d)
	commit(t, d, Change{Put: []Entry{entry(1, 1000), entry(2, 1000)}})
	room := disktest.Fill(t, dir)
	var tickets []*Ticket
	for id := uint64(3); id <= 20; id++ {
		tickets = append(tickets, d.Submit(Change{Put: []Entry{entry(id, 100_000)}}))
		if id == 3 { // retried without a further call, too
			for tries := time.Duration(0); tries < 3; tries++ {
				<-time.After(disk.RetryEvery)
				commit(t, d, Change{State: []byte(`"meanwhile"`)})
			}
		}
	}
	commit(t, d, Change{End: []uint64{1}, State: []byte(`"acknowledged"`)})
	for i, ticket := range tickets {
		select {
		case <-ticket.done:
			t.Fatalf("group %d is answered on a full disk: %v", i+3, ticket.err)
		default:
		}
	}
	room()
	for i, ticket := range tickets {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := ticket.Wait(ctx); err != nil {
			t.Fatalf("group %d: %v", i+3, err)
		}
		cancel()
	}
	commit(t, d, Change{State: []byte(`"after"`)})
	d.crash()
	d = openDisk(t, dir+"/store")
	if c := scan(t, d); len(c.groups) != 19 || string(c.State) != `"after"` {
		t.Errorf("%d groups and state %s are left, want 19", len(c.groups), c.State)
	}
	holds(t, d, 2, 3, 11, 20)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(reported) != 2 || !strings.Contains(reported[0], "waits for room on the disk of "+dir) || reported[1] != "" {
		t.Errorf("reported: %q", reported)
	}
}

// Waiting submissions are refused after the time limit, and when the store is closed.
func TestWaitingForRoomEnds(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"in time": 10 * time.Millisecond, "at the close": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := disktest.Small(t, 24<<20)
			d, err := OpenDisk(dir+"/store", DiskOptions{Always: true, Wait: wait})
			if err != nil {
				t.Fatal(err)
			}
			scan(t, d)
			commit(t, d, Change{Put: []Entry{entry(1, 1000)}})
			disktest.Fill(t, dir)
			ticket := d.Submit(Change{Put: []Entry{entry(2, 100_000)}})
			if name == "at the close" {
				d.crash()
			}
			if err := ticket.Wait(t.Context()); !errors.Is(err, ErrFull) {
				t.Errorf("answered with %v, want ErrFull", err)
			}
			if name != "at the close" {
				d.crash()
			}
		})
	}
}
