package view

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/event"
)

// MayWarn says of the JSON of an event whether it may be a warning or an error, by what SeverityOf looks for: most of a
// log is neither, and need not be decoded to know that.
func MayWarn(line []byte) bool {
	return slices.ContainsFunc(warns, func(part []byte) bool { return bytes.Contains(line, part) })
}

var warns = [][]byte{[]byte(`"warn"`), []byte(`"error"`), []byte(`"failed"`), []byte(`"` + event.Restart + `"`),
	[]byte(`"` + event.Stalled + `"`)}

// ownWords are those that Line itself writes for the events that are most of a log. Every other word of their lines
// stands in their JSON.
const ownWords = "weights version served by after checkpoint at " +
	"step and similar before error warning NaN Inf"

var mostOfALog = [][]byte{[]byte(`"type":"` + event.Metrics + `"`), []byte(`"type":"` + event.LogLine + `"`),
	[]byte(`"type":"` + event.Progress + `"`), []byte(`"type":"` + event.Weights + `"`),
	[]byte(`"type":"` + event.Checkpoint + `"`)}

var letters = regexp.MustCompile(`[A-Za-z]+`)

// MayHold makes a function that says of the JSON of an event whether its line may match an expression: not if it lacks
// the longest word of those that a match begins with.
func MayHold(expression string) func(line []byte) bool {
	word := ""
	if e, err := regexp.Compile(expression); err == nil {
		prefix, _ := e.LiteralPrefix()
		for _, w := range letters.FindAllString(prefix, -1) {
			if len(w) > len(word) {
				word = w
			}
		}
	}
	if len(word) < 3 || strings.Contains(ownWords, word) {
		return func([]byte) bool { return true }
	}
	// What is escaped, or is not ASCII, may be left out of the line, which joins the letters beside it.
	odd := func(r rune) bool { return r == '\\' || r > '~' }
	return func(line []byte) bool {
		return bytes.Contains(line, []byte(word)) || bytes.ContainsFunc(line, odd) ||
			!slices.ContainsFunc(mostOfALog, func(part []byte) bool { return bytes.Contains(line, part) })
	}
}
