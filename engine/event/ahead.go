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
	kept  bool // it was picked
}

// decodeAll decodes the lines that are picked, on several cores.
func decodeAll(lines [][]byte, pick Pick) []decoded {
	out := make([]decoded, len(lines))
	part := max(32, (len(lines)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for from := 0; from < len(lines); from += part {
		some := func() {
			d := newDecoder()
			for i := from; i < min(from+part, len(lines)); i++ {
				if pick.Text != nil && !pick.Text(lines[i]) {
					continue
				}
				e, err := d.decode(lines[i])
				out[i] = decoded{e, err, err == nil && (pick.Event == nil || pick.Event(e))}
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
