// Package diskwait lets a block wait for room on a disk.
package diskwait

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/sdk"
)

// Await calls f, which writes to the disk of path, until it does not fail because the disk is full; then it returns
// what f did, or how ctx ended. Meanwhile the block is in the phase during, sdk.Degraded or, before it is ready,
// sdk.Loading, with a message that says so, and starting it again would not help. F must leave nothing behind when it
// fails.
func Await(ctx context.Context, host sdk.Host, during sdk.Phase, path string, f func() error) error {
	return await(ctx, host, during, path, disk.Full, f)
}

// AwaitDisk is Await that waits out whatever else makes a disk refuse a write, too: see disk.Refused.
func AwaitDisk(ctx context.Context, host sdk.Host, during sdk.Phase, path string, f func() error) error {
	return await(ctx, host, during, path, disk.Refused, f)
}

func await(ctx context.Context, host sdk.Host, during sdk.Phase, path string, wait func(error) bool,
	f func() error) error {
	var waiting *sdk.Ongoing
	defer func() { waiting.End() }()
	return disk.RetryWhile(ctx, path, wait, func(text string) {
		switch {
		case text != "":
			host.Log("warn", "it "+text)
			host.Phase(during, text)
			waiting = host.Begin(sdk.Activity{What: "room on a disk", Detail: text, Patience: forAsLongAsItTakes,
				Remedy: "make room on the disk of " + path + ", or make it writable"})
		case during == sdk.Degraded:
			host.Phase(sdk.Ready, "")
		default:
			host.Phase(during, "")
		}
	}, f)
}

// forAsLongAsItTakes is the patience with what starting a block again cannot mend.
const forAsLongAsItTakes = 10 * 365 * 24 * time.Hour
