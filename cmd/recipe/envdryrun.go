package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/single"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// dryRunGroup is the size of the group of a dry run: two rollouts of one task can be compared.
const dryRunGroup = 2

// errDryRun is how a dry run ends that found something wrong, which it has shown.
var errDryRun = errors.New("the dry run found something wrong")

// dryRun opens an environment once. A server with one fixed answer stands in for every inference block.
func (a *app) dryRun(ctx context.Context, file, address string, f *tryFlags) (err error) {
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTryTimeout)
	defer cancel()
	if f.policy.policy != "" {
		return fmt.Errorf("--dry-run asks no model: leave --policy out, or --dry-run")
	}
	fixed, err := single.NewFixed(f.answer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fixed.Close()) }()
	f.policy.policy, f.policy.key, f.policy.everywhere = fixed.URL, fixed.Token, true
	f.n, f.groupSize = 1, dryRunGroup
	l, groups, err := a.tryGroups(ctx, file, address, f)
	if l != nil {
		defer func() { err = errors.Join(err, l.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	report, err := a.dryReport(l, fixed.Asked(), groups[0])
	if err != nil {
		return err
	}
	report.Answer = f.answer
	report.Check()
	if f.json {
		err = view.JSON(a.out, report)
	} else {
		err = report.Show(a.out, a.style())
	}
	if err == nil && len(report.Wrong) > 0 {
		err = errDryRun
	}
	return err
}

func (a *app) dryReport(l *lone, asked [][]single.Asked, group view.TriedGroup) (*view.DryRun, error) {
	d := &view.DryRun{Environment: l.block.Addr.String(), Says: l.says.lines()}
	for _, c := range group.Completions {
		if c.Score != nil {
			d.Scores = append(d.Scores, *c.Score)
		}
	}
	first := beginnings(asked)
	if len(first) > 0 {
		d.Prompt = first[0]
	}
	if len(first) > 1 {
		d.Mixed = first
	}
	for _, m := range d.Prompt {
		d.PromptBytes += len(m.Content)
	}
	d.Turns = turns(asked)
	body, _, err := l.blocks.Evaluate(l.block.Addr)
	if err != nil {
		return nil, err
	}
	d.MaxTokens = number(body, "max_tokens", 0)
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	const bytesOfToken = 4 // of English text, about
	d.PromptTokens = (d.PromptBytes + bytesOfToken - 1) / bytesOfToken
	if b := policyOf(l); b != nil {
		if b.Plugin() == "tiny" { // its tokens are bytes
			d.PromptTokens = d.PromptBytes
		}
		d.MaxModelLen, _ = strconv.Atoi(session.Facts(catalog, b)["max_model_len"])
	}
	return d, nil
}

// policyOf is the inference block that the environment names; nil: it is not one of the recipe.
func policyOf(l *lone) *schema.Block {
	for _, need := range l.block.Needs {
		if need.On.Kind == kind.Inference && need.Attribute == "inference" {
			return l.recipe.Lookup(need.On)
		}
	}
	return nil
}

// beginnings are the different requests with which rollouts began: those with the fewest messages.
func beginnings(asked [][]single.Asked) [][]view.TriedMessage {
	least := -1
	for _, messages := range asked {
		if least < 0 || len(messages) < least {
			least = len(messages)
		}
	}
	var out [][]view.TriedMessage
	for _, messages := range asked {
		if len(messages) != least {
			continue
		}
		begins := make([]view.TriedMessage, len(messages))
		for i, m := range messages {
			begins[i] = view.TriedMessage(m)
		}
		if !slices.ContainsFunc(out, func(known []view.TriedMessage) bool { return slices.Equal(known, begins) }) {
			out = append(out, begins)
		}
	}
	return out
}

// turns is how many answers a rollout had at most.
func turns(asked [][]single.Asked) int {
	var answers []int
	for _, messages := range asked {
		n := 0
		for _, m := range messages {
			if m.Role == "assistant" {
				n++
			}
		}
		answers = append(answers, n)
	}
	if len(answers) == 0 {
		return 0
	}
	return slices.Max(answers) - slices.Min(answers) + 1 // a prompt may have answers itself
}

// said holds what an environment reports.
type said struct {
	mu  sync.Mutex
	all []string
}

// maxSaid is how many lines are kept.
const maxSaid = 20

func (s *said) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) < maxSaid {
		s.all = append(s.all, line)
	}
}

func (s *said) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}
