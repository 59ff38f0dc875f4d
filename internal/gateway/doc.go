// Package gateway is the stable, authenticated, OpenAI-compatible address that an inference plugin gives to
// environments.
//
// One gateway stands in front of one or several replicas of an inference engine, which listen on loopback and are
// reached through it only. It spreads requests over the replicas (prefix affinity first, then the least busy), holds
// requests during a weight update or a restart instead of failing them, stamps every answer with the policy version
// that sampled it, keeps a bounded record of completions (token ids, log-probabilities, version), and speaks Atropos's
// and SGLang's /generate in front of an engine that offers only /v1/completions.
//
// An author of an inference plugin calls New, then SetReplicas and Admit as engines come up, and Serve. Weight updates
// are one callback (Config.Update); the gateway runs the sequence around it: hold, update each replica, compare
// log-probabilities if the request brings expected ones, exclude failed replicas, raise the version, let requests
// through again.
//
// A request is let through only to a replica that is healthy and whose weights are of the gateway's current policy
// version, so versions are never mixed without being recorded. A replica whose update failed has an unknown version and
// gets no requests until it is admitted again.
package gateway
