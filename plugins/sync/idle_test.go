package sync

import "testing"

func TestSleepThatNobodyDoesIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		colocated string
		level     int64
		told      bool
	}{{"share", 1, true}, {"share", 0, false}, {"auto", 1, false}, {"sleep", 2, false}} {
		problems := (&syncer{}).Validate(Config{Transport: "auto", Colocated: c.colocated, SleepLevel: c.level})
		told := len(problems) == 1 && problems[0].Warning && problems[0].Summary == "sleep_level has no effect"
		if told != c.told || len(problems) > 0 != c.told {
			t.Errorf("%+v: %v", c, problems)
		}
	}
}
