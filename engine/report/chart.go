package report

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/engine/snapshot"
)

// The size of a chart, in units of its picture.
const (
	chartWidth  = 320
	chartHeight = 110
)

// chart is a curve as lines of an SVG.
type chart struct {
	Title         string
	Lines         []string // points of polylines: a value that is not finite ends one
	Least, Most   float64
	First, Last   int64 // steps
	Newest        float64
	Width, Height int
}

// chartsOf draws each metric of a block that has two values or more.
func chartsOf(b *snapshot.Block) []chart {
	var out []chart
	for _, name := range slices.Sorted(maps.Keys(b.History)) {
		if s := b.History[name]; len(s.Points) > 1 {
			out = append(out, draw(b.Address+" "+name, s))
		}
	}
	return out
}

func draw(title string, s *snapshot.Series) chart {
	n := len(s.Points)
	c := chart{Title: title, First: s.Points[0].Step, Last: s.Points[n-1].Step, Newest: s.Last, Width: chartWidth,
		Height: chartHeight, Least: math.Inf(1), Most: math.Inf(-1)}
	for _, p := range s.Points {
		if finite(p.Value) {
			c.Least, c.Most = min(c.Least, p.Value), max(c.Most, p.Value)
		}
	}
	if c.Least > c.Most { // no value is finite
		c.Least, c.Most = 0, 0
	}
	span, steps := c.Most-c.Least, float64(c.Last-c.First)
	var line strings.Builder
	end := func() {
		if line.Len() > 0 {
			c.Lines = append(c.Lines, line.String())
			line.Reset()
		}
	}
	for i, p := range s.Points {
		if !finite(p.Value) {
			end()
			continue
		}
		x, y := float64(i)/float64(n-1), 0.5
		if steps > 0 { // a run that was resumed may repeat steps
			x = max(0, float64(p.Step-c.First)/steps)
		}
		if span > 0 && finite(span) {
			y = (p.Value - c.Least) / span
		}
		line.WriteString(coordinate(x*chartWidth) + "," + coordinate((1-y)*(chartHeight-4)+2) + " ")
	}
	end()
	return c
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
