// Package protocol is what an engine and a plugin's process must agree on before they can talk: the environment
// variables of the process, the names of abilities, and the key pairs of mutual TLS. The messages are in package
// pluginpb, their conversion in package wire, the connection in package handshake.
package protocol

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
	// SourceKey is the environment variable that makes a binary serve the plugin in a Python file: the path of what
	// package sdk/kit/script has kept of it. BuiltinKey is set, too.
	SourceKey = "RECIPE_PLUGIN_SOURCE"
	// MarkKey is the environment variable by which a later engine knows that a process is the one it has a record of.
	MarkKey = "RECIPE_PLUGIN_MARK"
	// EngineKey is the environment variable that holds the pid of the engine when it is the parent of the process.
	EngineKey = "RECIPE_ENGINE_PID"
	// AgentKey is the environment variable that holds the same pid where the parent is the agent of a job.
	AgentKey = "RECIPE_AGENT_PID"
	// TrialKey is the environment variable of a process whose block is tried by a person, who waits: what fails once is an
	// error at once.
	TrialKey = "RECIPE_PLUGIN_TRIAL"
)

// CanPrepare is the capability of plugins that are an sdk.Preparer.
const CanPrepare = "prepare"

// EvaluatesTasks is the capability of environments that are an sdk.TaskEvaluator.
const EvaluatesTasks = "evaluate_tasks"

// CanRescore is the capability of environments that are an sdk.Rescorer.
const CanRescore = "rescore"

// UsesNodes is the capability of plugins that are an sdk.NodesUser.
const UsesNodes = "nodes"
