package ui

import (
	"math"
	"net/http"
	"sort"
)

// series are all values of one metric of one block, in order of their steps.
type series struct {
	steps  []float64
	times  []float64 // seconds since 1970
	values []float64
}

// add appends a value. A trainer that resumes from a checkpoint repeats steps: the earlier values of those steps give
// way.
func (s *series) add(step, time, value float64) {
	if n := len(s.steps); n > 0 && step < s.steps[n-1] {
		keep := sort.SearchFloat64s(s.steps, step)
		// what follows is written elsewhere: series that were kept share their steps and times
		s.steps, s.times, s.values = s.steps[:keep:keep], s.times[:keep:keep], s.values[:keep:keep]
	}
	s.steps, s.times, s.values = append(s.steps, step), append(s.times, time), append(s.values, value)
}

// points are what a chart draws.
type points struct {
	X []float64 `json:"x"`
	Y []*number `json:"y"`
	// N is how many values there are between the first and the last of X.
	N int `json:"n"`
	// Last is the newest value of them as it was reported, also where Y is smoothed.
	Last *number `json:"last"`
}

// number is null in JSON when it is not finite.
type number float64

// MarshalJSON implements json.Marshaler.
func (n *number) MarshalJSON() ([]byte, error) {
	return appendNumber(nil, float64(*n)), nil
}

// view is the part of a series from one x to another, smoothed, as at most about most points: the least and the
// greatest value of each stretch, so that no spike is lost.
func (s *series) view(byTime bool, from, to, smooth float64, most int) points {
	xs := s.steps
	if byTime {
		xs = s.times
	}
	ys := s.values
	if smooth > 0 {
		ys = smoothed(ys, smooth)
	}
	first, last := sort.SearchFloat64s(xs, from), sort.Search(len(xs), func(i int) bool { return xs[i] > to })
	first, last = max(first-1, 0), min(last+1, len(xs)) // lines go on beyond the edges
	if first >= last {
		return points{X: []float64{}, Y: []*number{}}
	}
	newest := number(s.values[last-1])
	xs, ys = xs[first:last], ys[first:last]
	out := points{N: len(xs), Last: &newest}
	put := func(i int) {
		y := number(ys[i])
		out.X, out.Y = append(out.X, xs[i]), append(out.Y, &y)
	}
	buckets := max(most/2, 1)
	if len(xs) <= 2*buckets {
		for i := range xs {
			put(i)
		}
		return out
	}
	for b := range buckets {
		lo, hi := b*len(xs)/buckets, (b+1)*len(xs)/buckets
		least, greatest := lo, lo
		for i := lo + 1; i < hi; i++ {
			if ys[i] < ys[least] {
				least = i
			}
			if ys[i] > ys[greatest] {
				greatest = i
			}
		}
		put(min(least, greatest))
		if least != greatest {
			put(max(least, greatest))
		}
	}
	return out
}

// smoothed is the exponential moving average with that weight on the past, corrected for its beginning.
func smoothed(values []float64, weight float64) []float64 {
	out := make([]float64, len(values))
	mean, power := 0.0, 1.0
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out[i] = v
			continue
		}
		mean = weight*mean + (1-weight)*v
		if power *= weight; power < 1e-18 {
			power = 0 // numbers below the normal ones are slow
		}
		out[i] = mean / (1 - power)
	}
	return out
}

// seriesOf answers with the series that are named: name=ADDRESS METRIC, as often as wanted.
func (r *run) seriesOf(_ http.ResponseWriter, req *http.Request) (any, error) {
	q := parameters(req)
	from, to := q.number("from", math.Inf(-1), math.Inf(-1), math.Inf(1)), q.number("to", math.Inf(1), math.Inf(-1),
		math.Inf(1))
	smooth, most := q.number("smooth", 0, 0, 0.9999), q.whole("points", 800, 2, 20_000)
	if q.err != nil {
		return nil, q.err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[string]points{}
	for i, name := range q.values["name"] {
		if s := r.series[name]; s != nil && i < 500 {
			out[name] = s.view(q.text("x") == "time", from, to, smooth, most)
		}
	}
	return out, nil
}
