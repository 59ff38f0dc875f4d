package plugintest

import (
	"context"
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/sdk/inference"
)

// fakeSleep is the sleep of a fake engine. It logs when it falls asleep and when it wakes, with these texts: "asleep at
// level N", "awake for version N", "awake as before", "cannot wake".
type fakeSleep struct {
	level  inference.SleepLevel
	failed int64
	woken  int64 // without new weights
}

func (f *fake) Sleep(_ context.Context, level inference.SleepLevel) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.config.EnableSleepMode {
		return errors.New("this engine was started without enable_sleep_mode")
	}
	f.nap.level = level
	f.host.Log("info", fmt.Sprintf("asleep at level %d", level))
	return nil
}

func (f *fake) Wake(context.Context) error {
	err := f.rise("as before")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nap.woken++; err == nil && f.nap.woken == f.config.WakeLost {
		f.weights = -12345
	}
	return err
}

// rise wakes the engine, or fails as often as configured.
func (f *fake) rise(how string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nap.level == 0 {
		return nil
	}
	if f.nap.failed < f.config.WakeFailures {
		f.nap.failed++
		f.host.Log("warn", "cannot wake")
		return errors.New("out of memory at wake-up")
	}
	f.nap.level = 0
	f.host.Log("info", "awake "+how)
	return nil
}
