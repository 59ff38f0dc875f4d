package ors

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// event is one server-sent event.
type event struct{ name, data string }

// errTooLarge reports that a stream holds more than is read of it.
var errTooLarge = errors.New("the answer is larger than max_response_size_mb")

// events reads server-sent events, up to limit bytes of them altogether, and gives each to take until that returns
// false. It returns nil when take has ended it, else why the stream did; io.EOF where the server closed it.
func events(r io.Reader, limit int64, take func(event) bool) error {
	limited := &io.LimitedReader{R: r, N: limit}
	lines := bufio.NewReader(limited)
	var e event
	var data []string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && limited.N <= 0 {
				return errTooLarge
			}
			return err
		}
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			e.data = strings.Join(data, "\n")
			if (e.name != "" || data != nil) && !take(e) {
				return nil
			}
			e, data = event{}, nil
		case name == "event":
			e.name = value
		case name == "data":
			data = append(data, value)
		}
	}
}
