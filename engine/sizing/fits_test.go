package sizing

import (
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/transport"
)

func TestWhichTrainersAndEnginesFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trainer, inference map[string]string
		want               []transport.Name
		why                string
	}{
		"in common": {map[string]string{"transports": "live,ipc,reload", "weights": "a"},
			map[string]string{"transports": "reload,ipc", "weights": "a"}, []transport.Name{"ipc", "reload"}, ""},
		"other forms": {map[string]string{"transports": "reload", "weights": "a"},
			map[string]string{"transports": "reload", "weights": "b"}, nil, `form "a"`},
		"nothing said": {nil, map[string]string{"transports": "ipc,reload"}, []transport.Name{"reload"}, ""},
	} {
		got, why := Fits(c.trainer, c.inference)
		if !slices.Equal(got, c.want) || !strings.Contains(why, c.why) || (c.why == "") != (why == "") {
			t.Errorf("%s: %v, %q; want %v, %q", name, got, why, c.want, c.why)
		}
	}
}
