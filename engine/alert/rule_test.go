package alert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/schema/decode"
)

const trainer = "trainer.tiny.policy"

func rewards(values ...float64) (events []event.Event) {
	for i, v := range values {
		events = append(events, event.Event{Type: event.Metrics, Address: trainer, Step: int64(i + 1),
			Metrics: map[string]float64{"reward": v}})
	}
	return events
}

func phase(address, phase string) event.Event {
	return event.Event{Type: event.Phase, Address: address, Phase: phase, Message: "m"}
}

// Each alert says once that its condition holds, and can say so again when it has ceased to.
//
//docs:alerts.md Alerts
func TestRules(t *testing.T) {
	t.Parallel()
	stalled := func(seconds float64) event.Event {
		return event.Event{Type: event.Stalled, Address: trainer, Seconds: seconds}
	}
	for name, c := range map[string]struct {
		alert  decode.Alert
		events []event.Event
		want   []string // number of the event, and whether it begins or is over
	}{
		"below": {decode.Alert{Metric: "reward", Op: "<", Value: 0.5, For: 1},
			rewards(0.7, 0.4, 0.3, 0.6, 0.4), []string{"1 begins", "3 over", "4 begins"}},
		"above for two": {decode.Alert{Metric: "reward", Op: ">", Value: 0.5, For: 2},
			rewards(0.7, 0.4, 0.7, 0.8, 0.9, 0.1), []string{"3 begins", "5 over"}},
		// means of two: 0.1 0.5 0.9 0.85 0.5 0.25 0.55 0.9
		"fell": {decode.Alert{Metric: "reward", Op: "fell", Value: 0.3, For: 2},
			rewards(0, 0.2, 0.8, 1, 0.7, 0.3, 0.2, 0.9, 0.9), []string{"5 begins", "8 over"}},
		"another metric": {decode.Alert{Metric: "kl", Op: ">", Value: 0, For: 1}, rewards(1, 2), nil},
		"another block":  {decode.Alert{Block: "trainer.tiny.b", Metric: "reward", Op: ">", For: 1}, rewards(1), nil},
		"a step reported twice": {decode.Alert{Metric: "reward", Op: ">", Value: 0.5, For: 2},
			[]event.Event{rewards(1)[0], rewards(1)[0]}, nil},
		"failed blocks are one alert": {decode.Alert{State: "failed"},
			[]event.Event{phase("a", "failed"), phase("b", "failed"), phase("a", "ready"), phase("b", "ready")},
			[]string{"0 begins", "3 over"}},
		"degraded": {decode.Alert{State: "degraded"}, []event.Event{phase("a", "failed"), phase("a", "degraded"),
			phase("a", "ready")}, []string{"1 begins", "2 over"}},
		"a new apply": {decode.Alert{State: "failed"},
			[]event.Event{phase("a", "failed"), {Type: event.RunStarted}, phase("a", "failed")},
			[]string{"0 begins", "1 over", "2 begins"}},
		"restarted": {decode.Alert{State: "restarted"}, []event.Event{{Type: event.Restart, Address: "a"},
			phase("a", "starting"), phase("a", "ready"), {Type: event.Restart, Address: "a"}},
			[]string{"0 begins", "2 over", "3 begins"}},
		"run failed": {decode.Alert{State: "run_failed", Block: "a"}, []event.Event{{Type: event.RunEnded, Phase: "stopped"},
			{Type: event.RunEnded, Phase: "failed"}}, []string{"1 begins"}},
		"run ended": {decode.Alert{State: "run_ended"}, []event.Event{{Type: event.RunEnded, Phase: "stopped"}},
			[]string{"0 begins"}},
		"stalled": {decode.Alert{Stalled: 2 * time.Minute}, []event.Event{stalled(60), stalled(130), stalled(300),
			{Type: event.StallOver, Address: trainer}}, []string{"1 begins", "3 over"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRule(c.alert)
			concerned := concerns([]*rule{r})
			var got []string
			for i, e := range c.events {
				line, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if !concerned(line) {
					continue // as when the log is read for the first time
				}
				if change := r.take(e); change != nil {
					got = append(got, fmt.Sprint(i, map[bool]string{true: " over", false: " begins"}[change.over]))
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDiskRule(t *testing.T) {
	t.Parallel()
	r := newRule(decode.Alert{Disk: 2})
	if r.free(3<<30) != nil {
		t.Error("3 GiB are less than 2")
	}
	if c := r.free(1 << 30); c == nil || c.over || c.message != "1.0 GiB are free (less than 2)" {
		t.Errorf("1 GiB: %+v", c)
	}
	if c := r.take(event.Event{Type: event.RunStarted}); c != nil {
		t.Errorf("the disk is looked at before the apply has started, and is as full after that: %+v", c)
	}
	if r.free(1<<30) != nil {
		t.Error("said twice")
	}
	if c := r.free(3 << 30); c == nil || !c.over {
		t.Errorf("room again: %+v", c)
	}
}

// A metric that does not come is worth one warning, after many reports of a block that reports it.
func TestAMetricThatDoesNotCome(t *testing.T) {
	t.Parallel()
	const environment = "environment.reward.sums"
	for name, c := range map[string]struct {
		alert decode.Alert
		want  string // the block that the warning names; "": there is none
	}{
		"of a trainer": {alert: decode.Alert{Metric: "eval/acc", Op: ">", Reporters: []string{trainer}}, want: trainer},
		"of an environment": {alert: decode.Alert{Metric: "metrics/x", Op: ">", Reporters: []string{environment}},
			want: environment},
		"of no block's report": {alert: decode.Alert{Metric: "evaluation/e/score", Op: ">"}},
		"by its other name":    {alert: decode.Alert{Metric: "reward/mean", Op: ">", Reporters: []string{trainer}}},
		"of a state":           {alert: decode.Alert{State: "failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, said := newRule(c.alert), []string{}
			for _, e := range rewards(make([]float64, 2*absentAfter)...) {
				for _, address := range []string{trainer, environment} {
					e.Address = address
					r.take(e)
					if text := r.missing(e); text != "" {
						said = append(said, text)
					}
				}
			}
			switch {
			case c.want == "" && len(said) > 0, c.want != "" && len(said) != 1:
				t.Errorf("said %q", said)
			case c.want != "" && !strings.Contains(said[0], "in 20 reports of "+c.want+": it cannot fire"):
				t.Errorf("said %q, want %s in it", said[0], c.want)
			}
		})
	}
}
