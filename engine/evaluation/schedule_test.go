package evaluation

import "testing"

func TestSchedule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule           Schedule
		done, served, want int64 // want -1: none
	}{
		"baseline":                        {Schedule{true, 25, 1}, -1, 0, 0},
		"baseline before anything serves": {Schedule{true, 25, 1}, -1, -1, 0},
		"late baseline":                   {Schedule{true, 25, 1}, -1, 7, 0},
		"too late for a baseline":         {Schedule{true, 25, 1}, -1, 60, 50},
		"first":                           {Schedule{true, 25, 1}, 0, 0, 25},
		"first of none at the start":      {Schedule{false, 25, 1}, -1, 0, 25},
		"not yet":                         {Schedule{true, 25, 1}, 25, 49, 50},
		"now":                             {Schedule{true, 25, 1}, 25, 50, 50},
		"missed":                          {Schedule{true, 25, 1}, 25, 53, 50},
		"several missed":                  {Schedule{true, 25, 1}, 25, 130, 125},
		"done late":                       {Schedule{true, 25, 1}, 50, 53, 75},
		"the trainer went back":           {Schedule{true, 25, 1}, 50, 40, 75},
		"weights every four steps":        {Schedule{true, 25, 4}, 0, 20, 24},
		"weights every four steps, now":   {Schedule{true, 25, 4}, 0, 24, 24},
		"weights less often":              {Schedule{true, 2, 4}, 0, 0, 4},
		"weights less often, then":        {Schedule{true, 2, 4}, 4, 4, 8},
		"baseline alone":                  {Schedule{true, 0, 1}, -1, 0, 0},
		"nothing more":                    {Schedule{true, 0, 1}, 0, 30, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := c.schedule.Next(c.done, c.served)
			if !ok {
				got = -1
			}
			if got != c.want {
				t.Errorf("next is %d, want %d", got, c.want)
			}
		})
	}
}
