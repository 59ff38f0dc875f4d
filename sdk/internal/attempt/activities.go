package attempt

import (
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// activities are those of one block. The zero value is one that has not reported any.
type activities struct {
	mu       sync.Mutex
	reported bool
	ongoing  []*sdk.Ongoing
	sources  []func() []sdk.Activity
}

func (s *activities) begin(a sdk.Activity) *sdk.Ongoing {
	o := sdk.NewOngoing(a, s.end)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = true
	s.ongoing = append(s.ongoing, o)
	return o
}

func (s *activities) end(o *sdk.Ongoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.ongoing, o); at >= 0 {
		s.ongoing = slices.Delete(s.ongoing, at, at+1)
	}
}

func (s *activities) source(list func() []sdk.Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = true
	s.sources = append(s.sources, list)
}

// sourcePatience bounds how long a source may take: one that waits for a lock held by hanging code must not hide the
// rest.
const sourcePatience = time.Second

// list returns the activities of this moment, and false when the block has never reported any.
func (s *activities) list() ([]sdk.Activity, bool) {
	s.mu.Lock()
	reported, sources := s.reported, slices.Clone(s.sources)
	out := make([]sdk.Activity, 0, len(s.ongoing))
	for _, o := range s.ongoing {
		out = append(out, o.Now())
	}
	s.mu.Unlock()
	late := time.NewTimer(sourcePatience)
	defer late.Stop()
	for _, source := range sources {
		answer := make(chan []sdk.Activity, 1)
		go func() { answer <- source() }()
		select {
		case list := <-answer:
			out = append(out, list...)
		case <-late.C:
			return append(out, sdk.Activity{What: "a function that reports activities has not returned",
				Began: time.Now().Add(-sourcePatience)}), reported
		}
	}
	return out, reported
}

// Doing returns the activities of this moment, and false when the block has never reported any.
func (a *Attempt) Doing() ([]sdk.Activity, bool) { return a.activities.list() }
