package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// column is a column of the table of blocks. Those that have no room are left out, the last first.
type column struct {
	name  string
	right bool
	text  func(s *screen, b *snapshot.Block) string
}

var columns = []column{
	{"STEP", true, func(_ *screen, b *snapshot.Block) string { return view.Steps(b) }},
	{"NEEDS", false, (*screen).needs},
	{"REWARD", true, func(_ *screen, b *snapshot.Block) string { return view.Metric(b, view.Rewards()...) }},
	{"TOKENS/S", true, func(_ *screen, b *snapshot.Block) string { return view.Metric(b, view.Speeds()...) }},
	{"VERSION", true, func(_ *screen, b *snapshot.Block) string {
		if b.Version == 0 {
			return ""
		}
		return strconv.FormatInt(b.Version, 10)
	}},
	{"DOES", false, (*screen).does}, // may be cut
}

// table is the graph of blocks, a line a block: its number, its phase, the numbers of the blocks that it needs, what it
// does or waits for. At most height lines, the selected block among them. Complete says that there was room for what
// the blocks do.
func (s *screen) table(width, height int) (lines []string, complete bool) {
	addresses := s.run.addresses()
	if s.reading {
		return []string{s.style.Dim("reading the log of the run")}, true
	}
	if len(addresses) == 0 {
		return []string{s.style.Dim("no block has started yet")}, true
	}
	rows := [][]view.Cell{{{Text: "  #", Paint: s.style.Bold}, {Text: "BLOCK", Paint: s.style.Bold},
		{Text: "PHASE", Paint: s.style.Bold}}}
	room := s.addressRoom(addresses, width)
	for i, a := range addresses {
		b := s.run.snap.Blocks[a]
		mark, paint := "  ", s.style.Cyan
		if a == s.selected {
			mark, paint = "▸ ", s.style.Bold
		}
		rows = append(rows, []view.Cell{{Text: mark + strconv.Itoa(i+1)},
			{Text: ansi.Truncate(view.OneLine(a), room, "…"), Paint: paint},
			{Text: b.Phase, Paint: s.style.Phase(b.Phase)}})
	}
	complete = s.addColumns(rows, addresses, width)
	lines = view.Rows(rows, width)
	if len(lines) > height {
		lines = s.scrolled(lines, max(slices.Index(addresses, s.selected), 0), height)
	}
	return lines, complete
}

// addressRoom is how wide an address may be, so that the phases fit beside them.
func (s *screen) addressRoom(addresses []string, width int) int {
	phase := len("PHASE")
	for _, a := range addresses {
		phase = max(phase, ansi.StringWidth(s.run.snap.Blocks[a].Phase))
	}
	return max(width-phase-len("  #    "), 10)
}

// addColumns adds to the rows the columns that say anything, as many as fit. It says whether the last one did.
func (s *screen) addColumns(rows [][]view.Cell, addresses []string, width int) (complete bool) {
	for _, c := range columns {
		said, room := false, 24 // what a block does may be cut
		cells := []view.Cell{{Text: c.name, Paint: s.style.Bold, Right: c.right}}
		for _, a := range addresses {
			text := c.text(s, s.run.snap.Blocks[a])
			said = said || text != ""
			cells = append(cells, view.Cell{Text: text, Right: c.right})
		}
		if c.right || c.name == "NEEDS" {
			room = 0
			for _, cell := range cells {
				room = max(room, ansi.StringWidth(cell.Text))
			}
		}
		if complete = widthOf(rows)+2+room <= width; !complete || !said {
			continue
		}
		for i := range rows {
			rows[i] = append(rows[i], cells[i])
		}
	}
	return complete
}

// widthOf is the width of rows in columns.
func widthOf(rows [][]view.Cell) int {
	width := 0
	for _, l := range view.Rows(rows, 0) {
		width = max(width, ansi.StringWidth(l))
	}
	return width
}

// scrolled keeps the head, the line of a selected row and as many others as there is room for.
func (s *screen) scrolled(lines []string, selected, height int) []string {
	room := max(height-2, 1)
	first := min(max(selected-room/2, 0), len(lines)-1-room)
	out := append([]string{lines[0]}, lines[1+first:1+first+room]...)
	return append(out, s.style.Dim(fmt.Sprintf("  … %d more blocks", len(lines)-1-room)))
}

// needs are the numbers of the blocks that a block needs.
func (s *screen) needs(b *snapshot.Block) string {
	addresses, out := s.run.addresses(), []string(nil)
	for _, need := range s.needed(b) {
		if i := slices.Index(addresses, need); i >= 0 {
			out = append(out, strconv.Itoa(i+1))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "← " + strings.Join(out, " ")
}

// needed are the blocks that a block needs: as it was started, before that as it was planned.
func (s *screen) needed(b *snapshot.Block) []string {
	if needs, started := s.facts.needs[b.Address]; started {
		return needs
	}
	return b.Needs
}

// does is what the block does or waits for, or its message.
func (s *screen) does(b *snapshot.Block) string {
	text := strings.Join(s.facts.doing[b.Address], "; ")
	if b.Restarts > 0 {
		text = strings.TrimSuffix(fmt.Sprintf("restarted %d×; %s", b.Restarts, text), "; ")
	}
	if text == "" {
		text = b.Message
	}
	return view.OneLine(text)
}
