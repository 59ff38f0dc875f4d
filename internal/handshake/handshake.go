// Package handshake is the connection between an engine and a plugin's process as go-plugin sees it.
package handshake

import (
	"context"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Config is what go-plugin calls the handshake.
func Config() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: protocol.Version, MagicCookieKey: protocol.CookieKey,
		MagicCookieValue: protocol.CookieValue}
}

// Plugin is the one plugin of go-plugin's set. A plugin's process sets Register, which registers its services; what an
// engine dispenses is a pluginpb.PluginClient.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Register func(grpc.ServiceRegistrar)
}

// GRPCServer implements plugin.GRPCPlugin.
func (p Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.Register(s)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (p Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pluginpb.NewPluginClient(conn), nil
}

// Client is the engine's side of go-plugin's set.
func Client() plugin.Plugin { return Plugin{} }
