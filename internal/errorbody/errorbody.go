// Package errorbody finds the message in the body of an error response. The bodies of most servers are
// JSON, of which a person reads one member.
package errorbody

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	most        = 2000 // bytes of a text that is quoted whole; the body may repeat a prompt
	mostDetails = 5    // mistakes of a body that lists them
)

// Text returns the message of a body: the member detail, error or message of an object, with the place of each mistake
// that FastAPI lists, or else the body itself in one line. What is longer than 2,000 bytes ends after a sentence, or
// else after a word, with the number of bytes that are left out.
func Text(body []byte) string {
	text := message(body, 0)
	if text == "" {
		text = string(body)
	}
	return Limit(strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " "))
}

// message is the text of a JSON value, or nothing.
func message(value []byte, depth int) string {
	if depth > 4 {
		return ""
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		return details(list, depth)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return ""
	}
	for _, name := range []string{"detail", "error", "message", "msg", "errors"} {
		if text := message(object[name], depth+1); text != "" {
			return place(object["loc"]) + text
		}
	}
	return ""
}

// details joins the mistakes of a list.
func details(list []json.RawMessage, depth int) string {
	var texts []string
	for i, one := range list {
		if i == mostDetails {
			texts = append(texts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		text := message(one, depth+1)
		if text == "" {
			return ""
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// place is where a mistake is, as FastAPI names it.
func place(loc json.RawMessage) string {
	var path []any
	if json.Unmarshal(loc, &path) != nil || len(path) == 0 {
		return ""
	}
	parts := make([]string, 0, len(path))
	for _, part := range path {
		parts = append(parts, fmt.Sprint(part))
	}
	return strings.Join(parts, ".") + ": "
}

// Limit ends a longer text after a sentence, or else after a word.
func Limit(text string) string {
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) {
		end--
	}
	head := text[:end]
	if i := max(strings.LastIndex(head, ". "), strings.LastIndex(head, "; ")); i > most/2 {
		head = head[:i+1]
	} else if i := strings.LastIndexByte(head, ' '); i > most/2 {
		head = head[:i]
	}
	return fmt.Sprintf("%s … (%d more bytes)", head, len(text)-len(head))
}
