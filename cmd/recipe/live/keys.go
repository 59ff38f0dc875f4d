package live

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

// key does what a key is for.
func (m *model) key(key string) tea.Cmd {
	s := &m.screen
	s.message = ""
	if s.question != "" {
		pending := m.pending
		s.question, m.pending = "", nil
		if key != "y" && key != "ctrl+c" {
			return nil
		}
		if key == "y" {
			return func() tea.Msg { return answerMsg(pending()) }
		}
	}
	switch key {
	case "ctrl+c":
		if m.ctrlC == nil {
			m.quit = true
			return tea.Quit
		}
		m.ctrlC()
	case "q":
		m.quit = true
		return tea.Quit
	case "?":
		s.page = helpPage
	case "esc":
		s.page, s.scroll = overview, 0
	case "space":
		s.frozen = !s.frozen
	case "enter":
		if s.run.snap.Blocks[s.selected] != nil {
			s.page, s.scroll = blockPage, 0
		}
	case "s":
		s.page, s.scroll = samplesPage, 0
		return m.readSample(nil, 0)
	case "c", "p", "r", "x":
		m.ask(key)
	default:
		return m.move(key)
	}
	return nil
}

// ask prepares a command that changes the run; y executes it.
func (m *model) ask(key string) {
	s := &m.screen
	selected := s.selected
	switch key {
	case "x":
		s.question, m.pending = "Stop the run at a checkpoint?", m.commands.Stop
	case "p":
		if s.run.snap.Paused.IsZero() {
			s.question, m.pending = "Pause the run?", func() string { return m.commands.Pause(true) }
		} else {
			s.question, m.pending = "Resume the run?", func() string { return m.commands.Pause(false) }
		}
	case "r":
		s.question, m.pending = "Restart "+view.OneLine(selected)+"?", func() string { return m.commands.Restart(selected) }
	case "c":
		trainer := s.trainer()
		if trainer == nil {
			s.message = "this run has no trainer"
			return
		}
		s.question = "Save a checkpoint of " + view.OneLine(trainer.Address) + "?"
		m.pending = func() string { return m.commands.Checkpoint(trainer.Address) }
	}
}

// move selects, scrolls or pages.
func (m *model) move(key string) tea.Cmd {
	s := &m.screen
	switch key {
	case "tab", "shift+tab":
		m.step(map[string]int{"tab": 1, "shift+tab": -1}[key])
		s.scroll = 0
		return nil
	case "left", "h":
		if s.page == samplesPage {
			return m.readSample(s.sample, 1)
		}
	case "right", "l":
		if s.page == samplesPage {
			return m.readSample(s.sample, -1)
		}
	}
	if len(key) == 1 && key[0] >= '1' && key[0] <= '9' {
		if addresses := s.run.addresses(); int(key[0]-'1') < len(addresses) {
			s.selected, s.scroll = addresses[key[0]-'1'], 0
		}
		return nil
	}
	m.scroll(key)
	return nil
}

// step selects the block n further down.
func (m *model) step(n int) {
	s := &m.screen
	addresses := s.run.addresses()
	if len(addresses) > 0 {
		at := slices.Index(addresses, s.selected) + n
		s.selected = addresses[(at+len(addresses))%len(addresses)]
	}
}

// scroll moves within a page. A log is scrolled away from its end, a sample from its beginning.
func (m *model) scroll(key string) {
	s := &m.screen
	screenful := max(s.height-6, 1)
	by := map[string]int{"up": 1, "k": 1, "down": -1, "j": -1, "pgup": screenful, "pgdown": -screenful, "home": 1 << 20,
		"end": -1 << 20}[key]
	switch s.page {
	case overview:
		if by == 1 || by == -1 {
			m.step(-by)
		}
	case blockPage:
		s.scroll = min(max(s.scroll+by, 0), max(s.run.lines[s.selected].len()-1, 0))
	case samplesPage:
		if s.sample != nil {
			s.scroll = min(max(s.scroll-by, 0), max(len(s.sampleLines(s.width))-1, 0))
		}
	}
}

// readSample begins to read the sample so many groups older than another; nil: the newest.
func (m *model) readSample(from *sample, older int) tea.Cmd {
	m.asked++
	asked := m.asked
	return func() tea.Msg {
		found, position := m.read(from, older)
		return sampleMsg{sample: found, position: position, asked: asked}
	}
}
