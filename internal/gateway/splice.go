package gateway

import "github.com/tidwall/gjson"

// Bodies are changed without decoding them: a request or an answer may be megabytes long, and fields that the gateway
// does not know must stay as they are, digit for digit. Everything that changes a body does so by splice.

// span is a range of bytes.
type span struct{ from, to int }

// edit replaces a span by raw JSON.
type edit struct {
	at  span
	raw string
}

// splice returns a JSON object with values replaced, and with members added at its head and at its end, each list of
// members without a comma around it. Edits are in their order in the body. Other JSON stays as it is.
func splice(body []byte, head string, edits []edit, end string) []byte {
	if head == "" && len(edits) == 0 && end == "" {
		return body
	}
	first := skipBlank(body, 0)
	last := len(body) - 1
	for last > first && blank(body[last]) {
		last--
	}
	if last <= first || body[first] != '{' || body[last] != '}' {
		return body
	}
	room := len(body) + len(head) + len(end) + 2
	for _, e := range edits {
		room += len(e.raw)
	}
	empty := skipBlank(body, first+1) == last
	out := append(make([]byte, 0, room), body[:first+1]...)
	out = append(out, head...)
	if head != "" && (!empty || end != "") {
		out = append(out, ',')
	}
	at := first + 1
	for _, e := range edits {
		out = append(append(out, body[at:e.at.from]...), e.raw...)
		at = e.at.to
	}
	out = append(out, body[at:last]...)
	if end != "" && !empty {
		out = append(out, ',')
	}
	return append(append(out, end...), body[last:]...)
}

func blank(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

func skipBlank[T string | []byte](s T, at int) int {
	for at < len(s) && blank(s[at]) {
		at++
	}
	return at
}

// find returns the span of a field's value in a JSON object.
func find(raw, name string) (at span, ok bool) {
	gjson.Parse(raw).ForEach(func(key, v gjson.Result) bool {
		if key.Str != name {
			return true
		}
		at, ok = spanOf(raw, v)
		return false
	})
	return at, ok
}

// spanOf returns the span of a value in the JSON that it was read from.
func spanOf[T string | []byte](json T, v gjson.Result) (span, bool) {
	at := span{v.Index, v.Index + len(v.Raw)}
	if at.from <= 0 || at.to > len(json) || string(json[at.from:at.to]) != v.Raw {
		return span{}, false
	}
	return at, true
}
