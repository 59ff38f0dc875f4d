package run

import (
	"errors"
	"strings"
	"testing"
)

// The text of a failed run is one line in the log, too: where the error ends and the remedy begins has to be seen.
func TestAFailureSaysWhatToDo(t *testing.T) {
	t.Parallel()
	text := (&Failure{Err: errors.New("out of memory"), Last: []string{"killed"}, Remedy: "lower batch_size"}).Error()
	if !strings.HasSuffix(text, "killed\nWhat to do: lower batch_size") {
		t.Error(text)
	}
}
