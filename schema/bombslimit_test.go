//go:build !race

package schema_test

func bombLimits() []string { return []string{"--cpu=20", "--data=2147483648"} }
