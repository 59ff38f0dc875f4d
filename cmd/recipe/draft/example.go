package draft

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// exampleRewards is the reward function of a recipe that is made from nothing.
const exampleRewards = `"""The rewards of this recipe, in the signature that TRL's GRPOTrainer has."""


def correct(completions, answer, **columns):
    """1 for the right answer, less for one that is only partly right, 0 for none.

    completions and each column of the dataset are lists, with one element for each answer of a group.
    """
    scores = []
    for text, want in zip(completions, answer):
        if not isinstance(text, str):  # prompts that are conversations have completions that are messages
            text = text[-1]["content"]
        same = sum(a == b for a, b in zip(text.strip(), want))
        scores.append(same / max(len(want), len(text.strip()), 1))
    return scores
`

// example is a recipe that learns on any machine: sums of two numbers.
func (p *parts) example() {
	p.about = "the program's own example"
	p.kind, p.group = "reward", 16
	random := rand.New(rand.NewPCG(1, 2)) // the same rows each time
	var rows strings.Builder
	for _, n := range random.Perm(50 * 50)[:400] { // each once: what is held out is not trained on
		a, b := n/50, n%50
		fmt.Fprintf(&rows, `{"prompt": "%02d+%02d=", "answer": "%02d"}`+"\n", a, b, a+b)
	}
	p.files = []File{{Path: p.Name + "_rewards.py", Text: exampleRewards},
		{Path: p.Name + "_train.jsonl", Text: rows.String()}}
	p.functions = []function{{name: p.Name + "_rewards.py:correct"}}
	p.settings = []attribute{{name: "dataset", value: p.Name + "_train.jsonl"},
		{name: "max_tokens", value: 4, note: "of one answer"}}
}
