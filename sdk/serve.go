package sdk

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"

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
				"To see its attributes: recipe plugin docs %s %s. To test it, use the package sdk/plugintest in a Go test.\n",
			def.Kind, def.Name, def.Name, os.Args[0], def.Kind, def.Name)
		os.Exit(2)
	}
	if err := serve(def); err != nil {
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

// ID is the definition's kind and name, KIND/NAME.
func (d *Definition) ID() string { return string(d.Kind) + "/" + d.Name }

// exitGrace is how long a block may take to end when the engine tells its process to exit without having stopped it
// first.
const exitGrace = 10 * time.Second

func serve(def *Definition) error {
	provider, certificate, err := serverTLS(os.Getenv("PLUGIN_CLIENT_CERT"))
	if err != nil {
		return err
	}
	// Programs that the plugin starts must not take themselves for plugins.
	for _, name := range []string{protocol.CookieKey, "PLUGIN_CLIENT_CERT", "PLUGIN_PROTOCOL_VERSIONS"} {
		_ = os.Unsetenv(name)
	}
	signals := make(chan os.Signal, 4)
	// Notify instead of Ignore: an ignored signal stays ignored in the programs that the plugin starts. With SIGPIPE
	// caught, a closed stderr loses log lines but does not end the process.
	signal.Notify(signals, os.Interrupt, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
	defer signal.Stop(signals)

	blocks := newServer(def)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan struct{})
	address := make(chan *plugin.ReattachConfig, 1)
	go plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: protocol.Handshake(),
		Plugins:         plugin.PluginSet{protocol.ServiceName: protocol.Plugin{Service: blocks}},
		GRPCServer:      plugin.DefaultGRPCServer,
		TLSProvider:     provider,
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr}),
		// go-plugin's ordinary mode replaces stdout and stderr by pipes which only a connected engine drains: a plugin
		// whose engine has died would hang after 64 KiB. Its test mode leaves them alone; the handshake below is all it
		// omits.
		Test: &plugin.ServeTestConfig{Context: ctx, ReattachConfigCh: address, CloseCh: served},
	})
	select {
	case at := <-address:
		fmt.Printf("%d|%d|%s|%s|%s|%s\n", plugin.CoreProtocolVersion, protocol.Version, at.Addr.Network(), at.Addr,
			plugin.ProtocolGRPC, certificate)
		_ = os.Stdout.Sync()
	case <-served:
		return fmt.Errorf("no socket could be opened; see the lines above")
	}
	grace := wait(blocks, signals, served)
	end, stop := context.WithTimeout(context.Background(), max(grace, defaultGrace)+15*time.Second)
	defer stop()
	err = blocks.shutdown(end, grace)
	cancel()
	select {
	case <-served:
	case <-end.Done():
	}
	return err
}

// wait returns when the process has to end, with the time that its block gets for it; 0 is the block's own grace.
func wait(blocks *server, signals <-chan os.Signal, served <-chan struct{}) (grace time.Duration) {
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				return 0
			}
		case <-blocks.lease.Expired():
			return exitGrace
		case <-served: // GRPCController.Shutdown
			return exitGrace
		}
	}
}

// serverTLS makes the server's side of mutual TLS from the engine's certificate, and this side's certificate as the
// handshake carries it. Without one the connection is plain, on a socket in a directory that only this user can enter.
func serverTLS(client string) (provider func() (*tls.Config, error), certificate string, err error) {
	if client == "" {
		return nil, "", nil
	}
	pair, err := protocol.NewKeyPair()
	if err != nil {
		return nil, "", err
	}
	config, err := pair.ServerConfig([]byte(client))
	if err != nil {
		return nil, "", err
	}
	return func() (*tls.Config, error) { return config, nil }, base64.RawStdEncoding.EncodeToString(pair.DER()), nil
}
