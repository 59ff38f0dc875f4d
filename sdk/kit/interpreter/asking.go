package interpreter

import (
	"strings"

	"github.com/recipe-rl/recipe/sdk/protocol"
)

// asking are the variables of a program that is only asked a question, such as for its schema: what it needs to run on
// this machine, and nothing that may be a secret, as of hubs, clouds, clusters and proxies.
var asking = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TERM", "NO_COLOR", "TMPDIR",
	"TMP", "TEMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "__CF_USER_TEXT_ENCODING",
	"LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "OMP_*",
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GORACE", "GOTRACEBACK", "GOCOVERDIR",
}

// Asking is the environment of a program that is only asked a question: the part of environ without secrets.
func Asking(environ []string) []string {
	var out []string
	for _, entry := range environ {
		if name, _, ok := strings.Cut(entry, "="); ok && protocol.MatchesEnvironment(name, asking) {
			out = append(out, entry)
		}
	}
	return out
}
