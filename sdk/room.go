package sdk

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/sdk/disk"
)

// AwaitRoom calls f, which writes to the disk of path, until it does not fail because the disk is full; then it returns
// what f did, or how ctx ended. Meanwhile the block is in a phase that says so, Degraded or, before it is ready,
// Loading, and starting it again would not help. F must leave nothing behind when it fails.
func AwaitRoom(ctx context.Context, host Host, during Phase, path string, f func() error) error {
	var waiting *Ongoing
	defer func() { waiting.End() }()
	return disk.Retry(ctx, path, func(text string) {
		switch {
		case text != "":
			host.Log("warn", "it "+text)
			host.Phase(during, text)
			waiting = host.Begin(Activity{What: "room on a disk", Detail: text, Patience: forAsLongAsItTakes,
				Remedy: "make room on the disk of " + path})
		case during == Degraded:
			host.Phase(Ready, "")
		default:
			host.Phase(during, "")
		}
	}, f)
}

// forAsLongAsItTakes is the patience with what starting a block again cannot mend.
const forAsLongAsItTakes = 10 * 365 * 24 * time.Hour
