package gateway

import (
	"bytes"
	"io"
)

// wholeEvents passes on a stream of server-sent events, each only when all of it is there, so that an event of the
// gateway's own can follow when the engine ends in the middle of one.
type wholeEvents struct {
	to   io.Writer
	part []byte // of an event
	torn bool   // part of an event was passed on: it is longer than maxEvent
}

func (e *wholeEvents) Write(p []byte) (int, error) {
	e.part = append(e.part, p...)
	end := lastEvent(e.part)
	if len(e.part)-end > maxEvent {
		end, e.torn = len(e.part), true
	} else if end > 0 {
		e.torn = false
	}
	if end == 0 {
		return len(p), nil
	}
	if _, err := e.to.Write(e.part[:end]); err != nil {
		return 0, err
	}
	e.part = append(e.part[:0], e.part[end:]...)
	return len(p), nil
}

// rest passes on what follows the last whole event.
func (e *wholeEvents) rest() error {
	if len(e.part) == 0 {
		return nil
	}
	_, err := e.to.Write(e.part)
	return err
}

// lastEvent is where the last whole event ends: after an empty line. Lines end in \n, \r\n or \r.
func lastEvent(b []byte) int {
	end := 0
	for _, line := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		if i := bytes.LastIndex(b, []byte(line)); i >= 0 {
			end = max(end, i+len(line))
		}
	}
	return end
}
