package live

import (
	"testing"

	tea "charm.land/bubbletea/v2"
)

// On a busy machine an earlier reading may end after a later one: the sample of the key that was pressed last stays.
func TestALateReadingDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	m := &model{screen: screen{run: newRun(), page: samplesPage}, read: func(from *sample, older int) (*sample, int) {
		if from == nil {
			return &sample{id: 9}, 0
		}
		return &sample{id: from.id - uint64(older)}, older
	}}
	shown := func(want uint64) {
		t.Helper()
		if m.screen.sample == nil || m.screen.sample.id != want {
			t.Fatalf("the screen shows %+v, want group %d", m.screen.sample, want)
		}
	}
	first := m.readSample(nil, 0)
	if _, again := m.Update(factsMsg{}); again != nil {
		t.Fatal("the newest sample is read a second time while it is being read")
	}
	m.Update(first())
	shown(9)
	_, older := m.Update(tea.KeyPressMsg{Code: tea.KeyLeft})
	_, newer := m.Update(tea.KeyPressMsg{Code: tea.KeyRight})
	m.Update(newer())
	shown(10)
	m.Update(older()) // was asked for first
	shown(10)
	_, older = m.Update(tea.KeyPressMsg{Code: tea.KeyLeft})
	m.Update(older())
	shown(9)
}
