package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// partsOf are random ones, some empty, some larger than what one call writes.
func partsOf(rng *rand.Rand) (parts [][]byte) {
	content := rand.NewChaCha8([32]byte{byte(rng.Uint32())})
	for range rng.IntN(3 * maxParts) {
		part := make([]byte, rng.IntN(3000)*rng.IntN(2))
		if rng.IntN(60) == 0 {
			part = make([]byte, rng.IntN(2*maxWrite))
		}
		_, _ = content.Read(part) // never fails
		parts = append(parts, part)
	}
	return parts
}

func TestPartsAreWrittenOneBehindTheOther(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		parts := partsOf(rand.New(rand.NewPCG(seed, 1)))
		want := slices.Concat(parts...)
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		if err := writeParts(f, slices.Clone(parts), 7); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.Name())
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if len(want) > 0 && !bytes.Equal(got, append(make([]byte, 7), want...)) {
			t.Errorf("seed %d: %d bytes in %d parts became %d other ones", seed, len(want), len(parts), len(got))
		}
	}
}

// The kernel may take any part of what it is given.
func TestWhatIsLeftToWrite(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		parts := partsOf(rng)
		all := slices.Concat(parts...)
		written := rng.IntN(len(all) + 1)
		if got := slices.Concat(rest(parts, written)...); !bytes.Equal(got, all[written:]) {
			t.Fatalf("after %d of %d bytes %d are left", written, len(all), len(got))
		}
	}
}

// A disk that becomes full in the middle of a call is an error, not a short frame.
func TestPartsThatHaveNoRoom(t *testing.T) {
	t.Parallel()
	dir := disktest.Small(t, 1<<20)
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	err = writeParts(f, [][]byte{make([]byte, 700_000), make([]byte, 700_000)}, 0)
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(full(err), ErrFull) {
		t.Errorf("written with %v", err)
	}
}
