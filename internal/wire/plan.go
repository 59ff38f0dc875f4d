package wire

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// EncodeEstimate makes the message of an estimate.
func EncodeEstimate(e sdk.Estimate) *pluginpb.Estimate {
	m := &pluginpb.Estimate{Notes: e.Notes, Facts: e.Facts}
	for _, a := range e.Amounts {
		m.Amounts = append(m.Amounts, &pluginpb.Amount{Resource: a.Resource, Part: a.Part, Value: a.Value, How: a.How})
	}
	return Readable(m)
}

// DecodeEstimate reads the message of an estimate.
func DecodeEstimate(m *pluginpb.Estimate) sdk.Estimate {
	e := sdk.Estimate{Notes: m.GetNotes(), Facts: m.GetFacts()}
	for _, a := range m.GetAmounts() {
		e.Amounts = append(e.Amounts, sdk.Amount{Resource: a.GetResource(), Part: a.GetPart(), Value: a.GetValue(),
			How: a.GetHow()})
	}
	return e
}

// EncodeProblems makes the messages of problems.
func EncodeProblems(problems []spec.Problem) ([]*pluginpb.Diagnostic, error) {
	list := make([]*pluginpb.Diagnostic, 0, len(problems))
	for _, p := range problems {
		path, err := spec.MarshalPath(p.Path)
		if err != nil {
			return nil, fmt.Errorf("encode the path of %q: %w", p.Summary, err)
		}
		list = append(list, Readable(&pluginpb.Diagnostic{Warning: p.Warning, Summary: p.Summary, Detail: p.Detail,
			Path: path}))
	}
	return list, nil
}

// DecodeProblems reads the messages of problems.
func DecodeProblems(list []*pluginpb.Diagnostic) ([]spec.Problem, error) {
	var problems []spec.Problem
	for _, d := range list {
		path, err := spec.UnmarshalPath(d.GetPath())
		if err != nil {
			return nil, fmt.Errorf("the path of %q: %w", d.GetSummary(), err)
		}
		problems = append(problems, spec.Problem{Path: path, Warning: d.GetWarning(), Summary: d.GetSummary(),
			Detail: d.GetDetail()})
	}
	return problems, nil
}

// EncodeActivity makes the message of an activity, with ages instead of times: the reader's clock may differ. Blank
// removes secrets from a text.
func EncodeActivity(a sdk.Activity, now time.Time, blank func(string) string) *pluginpb.Activity {
	if a.Began.IsZero() {
		a.Began = now
	}
	return Readable(&pluginpb.Activity{
		On: a.On, What: blank(a.What), Detail: blank(a.Detail), Have: a.Have, Want: a.Want, Unit: a.Unit,
		Sign: a.Sign, Remedy: blank(a.Remedy),
		AgeMs: max(0, now.Sub(a.Began).Milliseconds()), IdleMs: a.Idle(now).Milliseconds(),
		PatienceMs: a.Patience.Milliseconds(), Rest: a.Rest,
	})
}

// DecodeActivity reads the message of an activity, whose ages count from now.
func DecodeActivity(m *pluginpb.Activity, now time.Time) sdk.Activity {
	return sdk.Activity{
		On: m.GetOn(), What: m.GetWhat(), Detail: m.GetDetail(), Have: m.GetHave(), Want: m.GetWant(),
		Unit: m.GetUnit(), Sign: m.GetSign(), Remedy: m.GetRemedy(),
		Began: now.Add(-milliseconds(m.GetAgeMs())), Progressed: now.Add(-milliseconds(m.GetIdleMs())),
		Patience: milliseconds(m.GetPatienceMs()), Rest: m.GetRest(),
	}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
