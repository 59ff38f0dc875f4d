// Package e2e holds end-to-end tests: recipes applied by the built binary, with real vLLM, a real Atropos environment
// and PyTorch on the CPU. Nothing in them is a stand-in. scripts/e2e.sh makes what they need and runs them; they carry
// the build tag e2e.
package e2e
