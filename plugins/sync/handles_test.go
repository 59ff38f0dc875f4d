package sync

import (
	"strings"
	"testing"
)

func TestHandlesThatAreKnownAreLeftOut(t *testing.T) {
	t.Parallel()
	var h handles
	if _, err := h.full(`{"key": "a", "same": true}`); err == nil {
		t.Error("handles that were never told are taken for known")
	}
	first := `{"form":1,"key":"a","tensors":[` + strings.Repeat(`{"same":true},`, 40) + `{}]}`
	for _, c := range []struct{ published, want string }{
		{first, first}, {`{"key": "a", "same": true}`, first},
		{`{"key":"b","tensors":[]}`, `{"key":"b","tensors":[]}`}, // the trainer was started again
		{`{"key": "b", "same": true}`, `{"key":"b","tensors":[]}`},
		{"", ""}, // through files
	} {
		if got, err := h.full(c.published); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v", c.published, got, err)
		}
	}
	if _, err := h.full(`{"key": "a", "same": true}`); err == nil {
		t.Error("handles of an earlier trainer are taken for those of this one")
	}
}
