package event

import (
	"runtime"
	"sync"
)

// ahead is how many lines are decoded at a time, by all cores: decoding is most of the time that a long log takes.
const ahead = 2048

// decoded is what a line came to.
type decoded struct {
	event Event
	err   error
	kept  bool // by the filter
}

// decodeAll decodes lines and asks keep about each event, on several cores. Keep nil: all are kept.
func decodeAll(lines [][]byte, keep func(Event) bool) []decoded {
	out := make([]decoded, len(lines))
	part := max(32, (len(lines)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for from := 0; from < len(lines); from += part {
		some := func() {
			d := newDecoder()
			for i := from; i < min(from+part, len(lines)); i++ {
				e, err := d.decode(lines[i])
				out[i] = decoded{e, err, err == nil && (keep == nil || keep(e))}
			}
		}
		if from+part >= len(lines) {
			some() // the last part, and the only one of a few lines
		} else {
			group.Go(some)
		}
	}
	group.Wait()
	return out
}
