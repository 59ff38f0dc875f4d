package snapshot

import "math"

// seriesPoints bounds a series: beyond it neighbors are averaged, so that a run of a million steps keeps its shape.
const seriesPoints = 1024

// Series is one metric over the steps of a run.
type Series struct {
	Points []Point
	stride int // reports per point; 0 means 1
	held   int // reports in the last point so far
	First  float64
	Last   float64
	Count  int // reports, over all
	Sum    float64
}

// Point is the mean of Value over some steps, the first of which is Step.
type Point struct {
	Step  int64
	Value float64
}

// Add appends one report.
func (s *Series) Add(step int64, value float64) {
	if s.stride == 0 {
		s.stride = 1
	}
	if s.Count == 0 {
		s.First = value
	}
	s.Last = value
	s.Count++
	s.Sum += value
	if s.held > 0 && s.held < s.stride {
		p := &s.Points[len(s.Points)-1]
		p.Value += (value - p.Value) / float64(s.held+1)
		s.held++
		return
	}
	if len(s.Points) == seriesPoints {
		for i := range seriesPoints / 2 {
			a, b := s.Points[2*i], s.Points[2*i+1]
			s.Points[i] = Point{a.Step, (a.Value + b.Value) / 2}
		}
		s.Points = s.Points[:seriesPoints/2]
		s.stride *= 2
	}
	s.Points = append(s.Points, Point{step, value})
	s.held = 1
}

// Ends are the means over the first and the last tenth of the points (at least one, at most 16): a metric at the start
// and now, without the noise of one step.
func (s *Series) Ends() (before, after float64) {
	n := s.window()
	if n == 0 {
		return 0, 0
	}
	for i := range n {
		before += s.Points[i].Value / float64(n)
		after += s.Points[len(s.Points)-1-i].Value / float64(n)
	}
	return before, after
}

// Best is the highest mean over as many points in a row as in Ends, so that one outlier does not count.
func (s *Series) Best() float64 {
	n := s.window()
	if n == 0 {
		return 0
	}
	best := math.Inf(-1)
	for i := 0; i+n <= len(s.Points); i++ {
		sum := 0.0
		for _, p := range s.Points[i : i+n] {
			sum += p.Value
		}
		best = max(best, sum/float64(n))
	}
	return best
}

func (s *Series) window() int { return min(max(len(s.Points)/10, 1), 16, len(s.Points)) }

// Resample is the series as n means over equal parts of it; fewer when it has fewer points.
func (s *Series) Resample(n int) []float64 {
	if len(s.Points) <= n {
		out := make([]float64, len(s.Points))
		for i, p := range s.Points {
			out[i] = p.Value
		}
		return out
	}
	out := make([]float64, n)
	for i := range out {
		from, to := i*len(s.Points)/n, (i+1)*len(s.Points)/n
		for _, p := range s.Points[from:to] {
			out[i] += p.Value / float64(to-from)
		}
	}
	return out
}
