package gateway

import (
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
)

// VersionSpan reports that the tokens Start to End (exclusive) of a completion were sampled by the policy version.
type VersionSpan struct {
	Version int `json:"version"`
	Start   int `json:"start"`
	End     int `json:"end"`
}

// readSpans reads "weight_versions" of a choice, as vLLM reports them: its labels are the policy versions that the
// plugin gave. Nil when a label is not a version, such as that of a server that has no label yet.
func readSpans(v gjson.Result) (spans []VersionSpan) {
	ok := v.IsArray()
	v.ForEach(func(_, x gjson.Result) bool {
		version, err := strconv.Atoi(x.Get("version").String())
		ok = ok && err == nil && version >= 0
		spans = append(spans, VersionSpan{version, int(x.Get("start").Int()), int(x.Get("end").Int())})
		return ok
	})
	if !ok {
		return nil
	}
	return spans
}

// tile reports whether spans cover the first n tokens, one after the other.
func tile(spans []VersionSpan, n int) bool {
	at := 0
	for _, s := range spans {
		if s.Start != at || s.End <= s.Start {
			return false
		}
		at = s.End
	}
	return at == n && n > 0
}

// extend records that tokens up to end were sampled by a version.
func extend(spans []VersionSpan, version, end int) []VersionSpan {
	last := len(spans) - 1
	switch {
	case last >= 0 && spans[last].Version == version:
		spans[last].End = end
		return spans
	case last >= 0:
		return append(spans, VersionSpan{version, spans[last].End, end})
	}
	return append(spans, VersionSpan{version, 0, end})
}

// fromSpans takes the range of versions from the engine's report on every token, which is exact.
func (c *completion) fromSpans() {
	if c.version != UnknownVersion || c.bad != nil {
		return
	}
	low, high := UnknownVersion, UnknownVersion
	for i := range c.choices {
		if c.choices[i].spans == nil {
			return
		}
		for _, s := range c.choices[i].spans {
			if low == UnknownVersion || s.Version < low {
				low = s.Version
			}
			high = max(high, s.Version)
		}
	}
	c.spanLow, c.spanHigh = low, high
}

// several reports whether completions are known to hold tokens of more than one version.
func several(list []choice) bool {
	first := UnknownVersion
	for i := range list {
		for _, s := range list[i].spans {
			if first == UnknownVersion {
				first = s.Version
			}
			if s.Version != first {
				return true
			}
		}
	}
	return false
}

// appendSpans writes which version sampled which tokens of a completion: [{"version":3,"start":0,"end":57}].
func appendSpans(b []byte, ch *choice) []byte {
	b = append(b, '[')
	for i, s := range ch.spans {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"version":%d,"start":%d,"end":%d}`, s.Version, s.Start, s.End)
	}
	return append(b, ']')
}
