package host

import (
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// activitiesOf reads activities of the protocol, whose ages count from now.
func activitiesOf(list []*pluginpb.Activity, now time.Time) []sdk.Activity {
	out := make([]sdk.Activity, 0, len(list))
	for _, a := range list {
		out = append(out, sdk.Activity{
			On: a.GetOn(), What: a.GetWhat(), Detail: a.GetDetail(), Have: a.GetHave(), Want: a.GetWant(),
			Unit: a.GetUnit(), Sign: a.GetSign(),
			Remedy: a.GetRemedy(), Began: now.Add(-milliseconds(a.GetAgeMs())),
			Progressed: now.Add(-milliseconds(a.GetIdleMs())),
			Patience:   milliseconds(a.GetPatienceMs()), Rest: a.GetRest(),
		})
	}
	return out
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
