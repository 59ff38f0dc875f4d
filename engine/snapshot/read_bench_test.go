package snapshot_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// BenchmarkReadAMillionEvents reads a log of 515 MB: for the first time, and again.
func BenchmarkReadAMillionEvents(b *testing.B) {
	dir := b.TempDir()
	eventtest.Long(b, dir, 1_000_000)
	read := func(b *testing.B) {
		if _, err := snapshot.Read(dir); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			_ = os.Remove(filepath.Join(dir, "snapshot.kept"))
			read(b)
		}
	})
	b.Run("again", func(b *testing.B) {
		read(b)
		for b.Loop() {
			read(b)
		}
	})
}
