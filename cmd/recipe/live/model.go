package live

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/recipe-rl/recipe/engine/event"
)

// The messages that the program gets beside keys and sizes.
type (
	beginMsg  struct{ run *run } // what the log had come to before
	eventsMsg []event.Event      // new events, in order
	factsMsg  facts
	sampleMsg struct { // a sample was read; position 0 is the newest
		sample   *sample
		position int
		asked    int // which of the readings it was, from 1 on
	}
	answerMsg string   // what came of a command
	clockMsg  struct{} // times advance where no event comes
)

// model is the screen and what keys do with it.
type model struct {
	screen   screen
	commands Commands
	read     func(from *sample, older int) (*sample, int)
	ctrlC    func()        // what Ctrl-C does; nil: it ends the view
	quit     bool          // q was pressed
	pending  func() string // the command that waits for y
	held     []string      // the frame that is shown while the display is held
	asked    int           // readings of samples that were begun
	answered int           // the newest of them whose sample is shown
}

func (m *model) Init() tea.Cmd { return nil }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.screen.now = time.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = msg.Width, msg.Height
		m.held = nil
	case beginMsg:
		m.screen.run, m.screen.reading = msg.run, false
		m.selectFirst()
	case eventsMsg:
		for _, e := range msg {
			m.screen.run.apply(e)
		}
		m.selectFirst()
	case factsMsg:
		m.screen.facts = facts(msg)
		if m.screen.page == samplesPage && m.screen.sample == nil && m.asked == m.answered {
			return m, m.readSample(nil, 0)
		}
	case sampleMsg:
		// Readings may end in another order than they were asked for.
		if msg.asked > m.answered {
			m.answered = msg.asked
			m.screen.sample, m.screen.position, m.screen.scroll = msg.sample, msg.position, 0
		}
	case answerMsg:
		m.screen.message = string(msg)
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *model) selectFirst() {
	if blocks := m.screen.run.snap.Blocks; blocks[m.screen.selected] == nil && len(blocks) > 0 {
		m.screen.selected = m.screen.run.addresses()[0]
	}
}

func (m *model) View() tea.View {
	if !m.screen.frozen {
		m.held = nil
	}
	lines := m.held
	if lines == nil {
		lines = m.screen.frame()
	}
	if m.screen.frozen {
		m.held = lines
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}
