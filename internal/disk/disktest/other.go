//go:build !linux

package disktest

import "testing"

// Small skips: only Linux can mount a small disk for a test.
func Small(t testing.TB, _ int) string {
	t.Helper()
	t.Skip("needs a small disk of its own, which only Linux mounts")
	return ""
}

// Fill is never called where Small skips.
func Fill(testing.TB, string) (room func()) { return func() {} }
