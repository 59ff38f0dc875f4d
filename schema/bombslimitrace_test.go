//go:build race

package schema_test

// The race detector takes ten times as long, and maps memory without a limit.
func bombLimits() []string { return []string{"--cpu=300"} }
