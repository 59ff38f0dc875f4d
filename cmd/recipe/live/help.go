package live

// help lists the keys.
func (s *screen) help() []string {
	lines := []string{""}
	ctrlC := "as q"
	if s.stops {
		ctrlC = "stop the run, as x does"
	}
	for _, k := range [][2]string{
		{"↑ ↓ 1–9", "select a block"},
		{"enter", "the selected block: its metrics and its log"},
		{"s", "samples: ← older, → newer"},
		{"pgup pgdn", "scroll a log or a sample; home, end"},
		{"esc", "back to the overview"},
		{"space", "hold the display; the run continues"},
		{"c", "save a checkpoint of the selected trainer now"},
		{"p", "pause the run, or resume it"},
		{"r", "restart the selected block"},
		{"x", "stop the run at a checkpoint; recipe apply continues it"},
		{"q", "leave this view; the run continues"},
		{"ctrl-c", ctrlC},
		{"", s.dashboard},
	} {
		key := k[0]
		for len([]rune(key)) < 10 {
			key += " "
		}
		lines = append(lines, s.style.Bold(key)+" "+k[1])
	}
	return lines
}
