package trajectories

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Settings of what is off are told, and half a certificate is refused before anything runs, on loopback, too.
func TestThePlanTellsOfSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		block Block
		want  string
	}{
		"nothing":              {Block{SamplesBytes: 1, SamplesAge: time.Hour, Store: "disk", Sync: "never"}, ""},
		"an age of no samples": {Block{SamplesAge: time.Hour}, "warning samples_age"},
		"a disk without store": {Block{Store: "memory", Sync: "never"}, "warning sync"},
		"a certificate":        {Block{Host: "127.0.0.1", TLSCertificate: "c"}, "error tls_certificate"},
		"a key":                {Block{Host: "127.0.0.1", TLSKey: "k"}, "error tls_key"},
	} {
		_, problems := service{}.Plan(c.block, sdk.Placement{})
		var got []string
		for _, p := range problems {
			got = append(got, map[bool]string{true: "warning ", false: "error "}[p.Warning]+spec.PathString(p.Path))
		}
		if found := strings.Join(got, ", "); found != c.want {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
	}
}

// A time of 0 would be the default, and one below 0 none at all: neither is what it says.
func TestTimesAreAtLeastASecond(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hold_timeout", "environment_timeout"} {
		if a := Plugin().Schema.Attribute(name); a.Min == nil || *a.Min != 1 {
			t.Errorf("%s may be %v", name, a.Min)
		}
	}
}
