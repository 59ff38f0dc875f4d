package sdk

import (
	"fmt"
	"os"

	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Serve runs the definition as a plugin process. The main function of a plugin calls it and nothing else; it does not
// return: the process exits when the engine asks it to, when its lease has run out, or on SIGTERM. SIGINT and SIGHUP,
// which a terminal sends to everything, are ignored. What a plugin prints goes to the files stdout and stderr of its
// block's directory, and into the run's log.
func Serve(def *Definition) {
	if os.Getenv(protocol.CookieKey) != protocol.CookieValue {
		fmt.Fprintf(os.Stderr,
			"%s %q is a plugin of recipe and is started by it, not by hand.\nTo use it, name its path in the recipe: recipe { "+
				"required_plugins { %s = { source = %q } } }, or in dev_overrides of the settings.\n"+
				"To see its attributes: recipe plugin docs %s %s. To test it: recipe plugin test %s\n",
			def.Kind, def.Name, def.Name, os.Args[0], def.Kind, def.Name, os.Args[0])
		os.Exit(2)
	}
	if err := def.Implementation.Serve(); err != nil {
		fmt.Fprintf(os.Stderr, "serve %s %q: %v\n", def.Kind, def.Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ServeBuiltin serves one of several definitions when the process was started for that (see protocol.BuiltinKey).
// Otherwise it returns false at once. A main function calls it before anything else; when a definition was served it
// does not return.
func ServeBuiltin(defs []*Definition) bool {
	want, ok := os.LookupEnv(protocol.BuiltinKey)
	if !ok {
		return false
	}
	for _, def := range defs {
		if def.ID() == want {
			_ = os.Unsetenv(protocol.BuiltinKey)
			Serve(def)
		}
	}
	fmt.Fprintf(os.Stderr, "%s=%s: this binary has no such plugin\n", protocol.BuiltinKey, want)
	os.Exit(1)
	return true
}
