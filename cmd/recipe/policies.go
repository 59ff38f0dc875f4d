package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/policy"
	"github.com/recipe-rl/recipe/engine/session"
)

// planPolicies are the executables that a plan must pass, besides those of the settings.
type planPolicies struct {
	paths   []string
	timeout time.Duration
}

func (f *planPolicies) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.paths, "policy", nil,
		"ask an `EXECUTABLE` that reads the plan as JSON, or a file NAME.policy.hcl of conditions, which may deny it; "+
			"repeatable; those of the settings (policies) are asked first")
	cmd.Flags().DurationVar(&f.timeout, "policy-timeout", policy.DefaultTimeout,
		"deny the plan when a policy has not answered within this time")
	_ = cmd.MarkFlagFilename("policy")
}

// plan plans and asks the policies. Asked: there were any.
func (f *planPolicies) plan(ctx context.Context, a *app, s *session.Session) (p *plan.Plan, asked bool, err error) {
	set, err := readSettings(a.environ)
	if err != nil {
		return nil, false, err
	}
	if p, err = s.Plan(ctx); err != nil {
		return nil, false, err
	}
	policies := append(set.Policies, f.paths...)
	answers, err := policy.Ask(ctx, policies, f.timeout, p)
	s.Complete(answers)
	p.Findings = append(p.Findings, answers...)
	return p, len(policies) > 0, err
}
