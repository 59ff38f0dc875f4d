// Package tiny is the embedded pair: an inference server and a GRPO trainer around a small
// transformer in pure Go, so that a whole run can be seen, tested and taught on a laptop without a
// GPU and without Python. It speaks the same contract as the plugins for real models.
package tiny
