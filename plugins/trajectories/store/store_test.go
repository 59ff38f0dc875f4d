package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if asked := os.Getenv(writerEnv); asked != "" {
		var dir string
		var id uint64
		_, err := fmt.Sscan(asked, &dir, &id)
		fmt.Fprintln(os.Stderr, errors.Join(err, writeUntilKilled(dir, id)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// commit submits a change and waits until it is durable.
func commit(t testing.TB, s Store, c Change) {
	t.Helper()
	if err := try(t, s, c); err != nil {
		t.Fatal(err)
	}
}

func try(t testing.TB, s Store, c Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return s.Submit(c).Wait(ctx)
}

// contents is everything that a store lists.
type contents struct {
	groups map[uint64]Meta
	Snapshot
}

func scan(t testing.TB, s Store) contents {
	t.Helper()
	c := contents{groups: map[uint64]Meta{}}
	previous := uint64(0)
	var err error
	c.Snapshot, err = s.Scan(t.Context(), func(id uint64, m Meta) error {
		if id <= previous {
			t.Errorf("group %d is shown after group %d", id, previous)
		}
		previous, c.groups[id] = id, m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func body(id uint64, size int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, `{"id":%d}`, id), max(1, size/10))
}

func entry(id uint64, size int) Entry {
	b := body(id, size)
	return Entry{ID: id, Body: b, Meta: Meta{Env: int(id%3) - 1, Size: 4, Tokens: size, Longest: 9, Bytes: int64(len(b)),
		MinVersion: -1, MaxVersion: int64(id), Place: id, At: time.Now().UnixNano()}}
}

func holds(t testing.TB, s Store, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		got, err := s.Body(t.Context(), id, []byte("x"))
		if err != nil || !bytes.HasPrefix(got, append([]byte("x"), body(id, 1)...)) {
			t.Errorf("group %d is %.40q, %v", id, got, err)
		}
	}
}

// contract tests every store that outlives its process. open opens the same store again.
func contract(t *testing.T, open func() Store) {
	t.Helper()
	s := open()
	if c := scan(t, s); len(c.groups) != 0 || c.State != nil || c.LastID != 0 {
		t.Fatalf("a new store holds %+v", c)
	}
	one, two, three := entry(1, 100), entry(2, 100_000), entry(3, 10)
	three.Meta.Place = 0
	commit(t, s, Change{Put: []Entry{one, two}, State: json.RawMessage(`{"step":1}`),
		Keys: []Key{{Name: []byte("first"), Sum: 7, Groups: 2}}})
	commit(t, s, Change{Keys: []Key{{Name: []byte{0, 255}, Sum: 1<<32 - 1, Groups: -0},
		{Name: []byte("third"), Groups: 1000}}})
	commit(t, s, Change{Put: []Entry{three}, Batches: []Batch{{Number: 7, Grant: 2, Lease: time.Minute,
		Groups: []uint64{1, 2}, Early: true}}})
	commit(t, s, Change{Place: map[uint64]uint64{3: 44, 99: 5}})
	holds(t, s, 1, 2, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := try(t, s, Change{}); err == nil {
		t.Error("a closed store takes a change")
	}

	s = open()
	c := scan(t, s)
	three.Meta.Place = 44
	if want := map[uint64]Meta{1: one.Meta, 2: two.Meta, 3: three.Meta}; !maps.Equal(c.groups, want) {
		t.Errorf("after opening again it holds %+v, expected %+v", c.groups, want)
	}
	if string(c.State) != `{"step":1}` || len(c.Batches) != 1 || fmt.Sprint(c.Batches[0]) != fmt.Sprint(Batch{7, 2,
		time.Minute, []uint64{1, 2}, true}) || c.LastID != 44 {
		t.Errorf("after opening again the rest is %+v", c.Snapshot)
	}
	keys := fmt.Sprint([]Key{{[]byte("first"), 7, 2}, {[]byte{0, 255}, 1<<32 - 1, 0}, {[]byte("third"), 0, 1000}})
	if fmt.Sprint(c.Keys) != keys {
		t.Errorf("after opening again the keys are %v, expected %v", c.Keys, keys)
	}
	holds(t, s, 1, 2, 3)
	commit(t, s, Change{End: []uint64{1, 2, 77}, Ended: []uint64{7}, State: json.RawMessage(`{"step":2}`)})
	if _, err := s.Body(t.Context(), 1, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("an ended group: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open()
	if c := scan(t, s); len(c.groups) != 1 || len(c.Batches) != 0 || string(c.State) != `{"step":2}` || c.LastID != 44 ||
		fmt.Sprint(c.Keys) != keys {
		t.Errorf("in the end it holds %+v", c)
	}
	random(t, s, open)
}

// random compares a store with a map over many changes, many at a time, and after opening it again.
func random(t *testing.T, s Store, open func() Store) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	model := map[uint64]bool{3: true}
	next := uint64(100)
	for range 20 {
		var tickets []*Ticket
		for range 20 {
			var c Change
			for range rng.IntN(4) {
				next++
				c.Put = append(c.Put, entry(next, 1+rng.IntN(5000)))
				model[next] = true
			}
			for id := range model {
				if rng.IntN(3) == 0 && !slices.ContainsFunc(c.Put, func(e Entry) bool { return e.ID == id }) {
					c.End = append(c.End, id)
					delete(model, id)
				}
			}
			tickets = append(tickets, s.Submit(c))
		}
		for _, ticket := range tickets {
			if err := ticket.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		holds(t, s, slices.Collect(maps.Keys(model))...)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
		if c := scan(t, s); !slices.Equal(slices.Sorted(maps.Keys(c.groups)), slices.Sorted(maps.Keys(model))) {
			t.Fatalf("it holds %v, expected %v", slices.Sorted(maps.Keys(c.groups)), slices.Sorted(maps.Keys(model)))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDisk(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} {
		t.Run(fmt.Sprintf("always=%v", always), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			contract(t, func() Store {
				s, err := OpenDisk(dir, DiskOptions{Always: always})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
