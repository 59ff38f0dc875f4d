// Package arithmetic is a small verifiable task for the embedded pair: add two numbers. Every
// answer is right or wrong, and a part of the problems is kept back, so that a rising score can be
// told from memorized answers.
package arithmetic

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Split names a part of the problems. A pair and its mirror image (3+4 and 4+3) are always in the
// same split.
type Split string

// Train is four fifths of the problems, for learning; HeldOut is the rest, for evaluation only.
const (
	Train   Split = "train"
	HeldOut Split = "held-out"
)

// Limit is what both numbers stay below.
const Limit = 50

// MaxTokens is enough for every answer and its end mark.
const MaxTokens = 4

// Problem is one addition.
type Problem struct{ A, B int }

// Prompt is what the model reads, always of the same length.
func (p Problem) Prompt() string { return fmt.Sprintf("%02d+%02d=", p.A, p.B) }

// Answer is the one right completion.
func (p Problem) Answer() string { return strconv.Itoa(p.A + p.B) }

// Score is 1 for the right answer and 0 for anything else. A completion that did not end by itself
// is wrong whatever it says.
func (p Problem) Score(completion string, ended bool) float64 {
	if ended && completion == p.Answer() {
		return 1
	}
	return 0
}

// Problems lists a split, in a fixed order that looks random; empty for an unknown name.
func Problems(split Split) []Problem {
	var out []Problem
	for a := range Limit {
		for b := range Limit {
			if splitOf(a, b) == split {
				out = append(out, Problem{a, b})
			}
		}
	}
	rng := rand.New(rand.NewPCG(2024, 7))
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func splitOf(a, b int) Split {
	// A generator seeded with the unordered pair is a hash that stays the same on every machine.
	if rand.New(rand.NewPCG(uint64(min(a, b)), uint64(max(a, b)))).IntN(5) == 0 {
		return HeldOut
	}
	return Train
}
