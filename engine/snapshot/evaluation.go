package snapshot

import "github.com/recipe-rl/recipe/engine/event"

// Evaluation is what an evaluation block has measured so far.
type Evaluation struct {
	Name     string
	Baseline event.Event // the first result; zero Type when there is none
	Last     event.Event // the newest result; zero Type when there is none
	Now      event.Event // the newest event of it: begun, done or failed
	Done     int         // results
	Failed   int         // evaluations without a result
}

// maxEvaluations bounds how many are followed.
const maxEvaluations = 128

func (snap *Snapshot) evaluation(e event.Event) {
	of := snap.Evaluations[e.Name]
	if of == nil {
		if len(snap.Evaluations) >= maxEvaluations || len(e.Name) > maxName {
			return
		}
		if snap.Evaluations == nil {
			snap.Evaluations = map[string]*Evaluation{}
		}
		of = &Evaluation{Name: e.Name}
		snap.Evaluations[e.Name] = of
	}
	of.Now = e
	switch e.State {
	case event.EvaluationDone:
		if of.Done++; of.Baseline.Type == "" {
			of.Baseline = e
		}
		of.Last = e
	case event.EvaluationFailed:
		of.Failed++
	}
}
