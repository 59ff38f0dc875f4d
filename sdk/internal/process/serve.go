package process

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
	"google.golang.org/grpc"

	"github.com/recipe-rl/recipe/internal/handshake"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// exitGrace is how long a block may take to end when the engine tells its process to exit without having stopped it
// first.
const exitGrace = 10 * time.Second

// Serve serves the protocol of plugins until the engine asks the process to exit, its lease has run out, or SIGTERM
// arrives.
func Serve(def *sdk.Definition) error {
	listener.Inherit()
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

	blocks := NewServer(def)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan struct{})
	address := make(chan *plugin.ReattachConfig, 1)
	go plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake.Config(),
		Plugins:         plugin.PluginSet{protocol.ServiceName: handshake.Plugin{Register: blocks.Register}},
		GRPCServer:      newGRPCServer,
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
	end, stop := context.WithTimeout(context.Background(), max(grace, blocks.grace())+endMargin)
	defer stop()
	err = blocks.Close(end, grace)
	cancel()
	select {
	case <-served:
	case <-end.Done():
	}
	return err
}

// maxMessage is how large a message of the engine may be: recorded groups that are to be scored again.
const maxMessage = 64 << 20

func newGRPCServer(options []grpc.ServerOption) *grpc.Server {
	return plugin.DefaultGRPCServer(append(options, grpc.MaxRecvMsgSize(maxMessage)))
}

// wait returns when the process has to end, with the time that its block gets for it; 0 is the block's own grace.
func wait(blocks *Server, signals <-chan os.Signal, served <-chan struct{}) (grace time.Duration) {
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
