package schema

type evaluator struct{}
