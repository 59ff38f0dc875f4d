package view

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// An event is passed over by its JSON only where its line cannot match.
func TestWhatALineMayHoldIsSeenInItsJSON(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 0)
	metrics := event.Event{Type: event.Metrics, Time: at, Address: "trainer.tiny.a",
		Metrics: map[string]float64{"loss/total": 1}}
	line := event.Event{Type: event.LogLine, Time: at, Level: "warn", Message: "no GPU", Repeats: 2}
	joined := line
	joined.Message = "pro\u200bmpt di\x00sk"
	phase := event.Event{Type: event.RunStarted, Time: at, Message: "apply"}
	for expression, c := range map[string]struct {
		e    event.Event
		want bool
	}{
		"loss/total 1": {metrics, true}, "trainer": {metrics, true}, "reward": {metrics, false}, "step 0": {metrics, true},
		"GPU": {line, true}, "similar": {line, true}, "memory": {line, false}, "(?i)memory": {line, true},
		"memory|GPU": {line, true}, "prompt": {joined, true}, "started": {phase, true}, "warning: no": {line, true},
	} {
		data, err := json.Marshal(c.e)
		if err != nil {
			t.Fatal(err)
		}
		if got := MayHold(expression)(data); got != c.want {
			t.Errorf("%q in %s: %v, want %v", expression, data, got, c.want)
		}
	}
	for _, e := range []event.Event{metrics, line, {Type: event.Progress, Total: 9}, {Type: event.Weights},
		{Type: event.Checkpoint}} { // with no text of their own
		e.Address, e.Message, e.Metrics = "", "", nil
		if data, err := json.Marshal(e); err != nil || MayHold("nowhere")(data) {
			t.Errorf("%s is not passed over: %v", data, err)
		}
		for _, word := range letters.FindAllString(Line(Style{}, e), -1) {
			if !strings.Contains(ownWords, word) {
				t.Errorf("ownWords lacks %q, which Line writes", word)
			}
		}
	}
}

func TestWhatIsNoWarningIsSeenInItsJSON(t *testing.T) {
	t.Parallel()
	if MayWarn([]byte(`{"type":"metrics"}`)) || !MayWarn([]byte(`{"type":"restart"}`)) ||
		!MayWarn([]byte(`{"level":"warn"}`)) {
		t.Error("metrics are no warning; a restart and a line of level warn are")
	}
}
