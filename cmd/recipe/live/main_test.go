package live

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // frames show the time of day
	goleak.VerifyTestMain(m)
}
