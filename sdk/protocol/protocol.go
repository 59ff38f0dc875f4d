// Package protocol is what an engine and a plugin's process must agree on before they can talk: the handshake of
// go-plugin, the environment variables of the process, and the key pairs of mutual TLS. The messages are in package
// pluginpb.
package protocol

import (
	"context"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// What an engine and a plugin must agree on before they can talk.
const (
	// Version is the version of the protocol of package pluginpb.
	Version = 1
	// CookieKey and CookieValue are in the environment of every process that is started as a plugin. They keep a person
	// from starting one by accident; they protect nothing.
	CookieKey   = "RECIPE_PLUGIN_COOKIE"
	CookieValue = "b7f6a1d0-recipe-plugin-v1"
	// ServiceName is the name of the one service in go-plugin's set.
	ServiceName = "block"
	// BuiltinKey is the environment variable that makes a binary with several definitions serve one of them: kind/name.
	BuiltinKey = "RECIPE_PLUGIN"
	// MarkKey is the environment variable by which a later engine knows that a process is the one it has a record of.
	MarkKey = "RECIPE_PLUGIN_MARK"
	// EngineKey is the environment variable that holds the pid of the engine when it is the parent of the process.
	EngineKey = "RECIPE_ENGINE_PID"
)

// Handshake is what go-plugin calls the agreement above.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: Version, MagicCookieKey: CookieKey, MagicCookieValue: CookieValue}
}

// Plugin is the one plugin of go-plugin's set. A plugin's process sets Service; what an engine dispenses is a
// pluginpb.PluginClient.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Service pluginpb.PluginServer
}

// GRPCServer implements plugin.GRPCPlugin.
func (p Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, p.Service)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (p Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pluginpb.NewPluginClient(conn), nil
}

// ClientPlugin is the engine's side of go-plugin's set.
func ClientPlugin() plugin.Plugin { return Plugin{} }
