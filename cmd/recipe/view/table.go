package view

import (
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Cell is one cell of a table: its text, and how to paint it (nil: as it is). Paint sees the padded text, so colors
// never disturb the columns.
type Cell struct {
	Text  string
	Paint func(string) string
	Right bool // align to the right, for numbers
}

// Cells makes plain cells.
func Cells(texts ...string) []Cell {
	row := make([]Cell, len(texts))
	for i, t := range texts {
		row[i] = Cell{Text: t}
	}
	return row
}

// Rows lays rows out in columns two spaces apart. With limit > 0 no line is wider than that: the last column gives way
// first.
func Rows(rows [][]Cell, limit int) []string {
	var widths []int
	harmless := make([][]Cell, len(rows))
	for n, row := range rows {
		harmless[n] = slices.Clone(row)
		for i := range row {
			c := &harmless[n][i]
			c.Text = oneLine(c.Text) // names of metrics, for one, come from what a plugin runs
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(c.Text))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range harmless {
		lines[i] = line(row, widths, limit)
	}
	return lines
}

func line(row []Cell, widths []int, limit int) string {
	var b strings.Builder
	used := 0
	for i, c := range row {
		text, pad := c.Text, strings.Repeat(" ", widths[i]-runewidth.StringWidth(c.Text))
		switch {
		case c.Right:
			text = pad + text
		case i < len(row)-1:
			text += pad
		}
		gap := min(i, 1) * 2
		if room := limit - used - gap; limit > 0 && runewidth.StringWidth(text) > room {
			if room <= 0 {
				break
			}
			text = runewidth.Truncate(text, room, "…")
		}
		b.WriteString("  "[:gap])
		used += gap + runewidth.StringWidth(text)
		if c.Paint != nil {
			text = c.Paint(text)
		}
		b.WriteString(text)
	}
	return strings.TrimRight(b.String(), " ")
}

// Table writes rows in columns, with a head that is painted bold.
func Table(w io.Writer, s Style, head []string, rows [][]Cell) error {
	first := Cells(head...)
	for i := range first {
		first[i].Paint = s.Bold
	}
	for _, l := range Rows(append([][]Cell{first}, rows...), 0) {
		if _, err := io.WriteString(w, l+"\n"); err != nil {
			return err
		}
	}
	return nil
}
