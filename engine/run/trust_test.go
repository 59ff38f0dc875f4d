package run_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
)

// A record in a run directory from somebody else could name any folder as the weights that a restarted inference block
// loads.
//
//docs:survival.md a record names weights outside the run directory
func TestWeightsOutsideTheRunAreNotServed(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		f := newFixture(t)
		weights := filepath.Join(t.TempDir(), "weights")
		if own {
			weights = filepath.Join(string(f.dir), "blocks", "sync.weights.s", "weights", "v000000003")
		}
		if err := errors.Join(f.dir.Make(), os.MkdirAll(weights, 0o700)); err != nil {
			t.Fatal(err)
		}
		store, err := state.OpenStore(f.dir, nil)
		if err == nil {
			err = errors.Join(store.Rewrite(func(r *state.Run) {
				r.Policy = state.Policy{Version: 3, Weights: weights,
					Format: "hf"}
			}), store.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := run.Open(context.Background(), run.Options{Dir: f.dir, Name: "r", File: "r.hcl",
			Host: f.host, Plugins: f.plug})
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		want := state.Policy{Version: 3}
		if own {
			want.Weights, want.Format = weights, "hf"
		}
		if got := f.record().Policy; got != want {
			t.Errorf("own %v: the policy is %+v, want %+v", own, got, want)
		}
		reported := false
		if err := event.Read(f.dir.Events(), 0, func(ev event.Event) error {
			reported = reported || ev.Type == event.Notice && strings.Contains(ev.Message, weights)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if reported == own {
			t.Errorf("own %v: reported in the events %v", own, reported)
		}
	}
}

// TestKeysOfARunFromElsewhereAreRenewed: its maker has left out where it was made, so nobody has to claim it.
func TestKeysOfARunFromElsewhereAreRenewed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	open := func() (key, authority []byte) {
		e, err := run.Open(context.Background(), run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host,
			Plugins: f.plug})
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		key, err = os.ReadFile(filepath.Join(string(f.dir), "key"))
		if err != nil {
			t.Fatal(err)
		}
		authority, _ = os.ReadFile(filepath.Join(string(f.dir), "authority.json"))
		return key, authority
	}
	before, _ := open()
	if err := os.WriteFile(filepath.Join(string(f.dir), "authority.json"), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, authority := open(); !bytes.Equal(key, before) || string(authority) != "theirs" {
		t.Error("a run that knows its place has lost its keys")
	}
	if err := os.Remove(filepath.Join(string(f.dir), "place.json")); err != nil {
		t.Fatal(err)
	}
	if key, authority := open(); bytes.Equal(key, before) || authority != nil {
		t.Error("the keys of a run without a place are used")
	}
}
