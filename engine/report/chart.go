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
		line.WriteString(across(i, n, p.Step, c.First, c.Last) + "," + up(p.Value, c.Least, c.Most) + " ")
	}
	end()
	return c
}

// across is where a point lies: by its step, or by its number i of n where all have one step.
func across(i, n int, step, first, last int64) string {
	x := float64(i) / float64(n-1)
	if steps := float64(last - first); steps > 0 { // a run that was resumed may repeat steps
		x = min(1, max(0, float64(step-first)/steps))
	}
	return coordinate(x * chartWidth)
}

// up is how high a value lies.
func up(v, least, most float64) string {
	y := 0.5
	if span := most - least; span > 0 && finite(span) {
		y = (v - least) / span
	}
	return coordinate((1-y)*(chartHeight-4) + 2)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
