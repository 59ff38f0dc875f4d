// Package engine is the kit for inference plugins whose engine is a server program, such as `vllm serve`: it keeps
// one or several replicas of the program alive and makes an inference.Engine of them.
//
// A plugin gives two things: a Program, which knows how a server is started and what its log means, and a Client,
// which speaks to one running server. The kit does the rest: it chooses ports and devices, starts the servers or
// adopts those of an earlier attempt, reads their logs, waits for a first token, brings each to the current
// weights, watches them, starts them again when they end, repairs those that failed to load an update, and lets them
// sleep and wake.
package engine
