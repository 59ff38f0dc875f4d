package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only for numbers that JSON cannot represent
		status, body = http.StatusInternalServerError, fmt.Appendf(nil,
			`{"error":{"message":%q,"type":"internal","code":500}}`, err.Error())
	}
	writeBody(w, status, body)
}

// writeRaw answers with a body that is JSON.
func writeRaw(w http.ResponseWriter, body []byte) { writeBody(w, http.StatusOK, body) }

func writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("gateway: a string always has a JSON form: " + err.Error())
	}
	return append(dst, b...)
}

// parseIDs appends the token ids of a JSON array such as [1, 2, 3].
func parseIDs(raw string, dst []int32) ([]int32, error) {
	i := skipBlank(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return nil, fmt.Errorf("want an array of token ids, got %s", brief(raw))
	}
	i = skipBlank(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return dst, nil
	}
	for {
		start, id := i, int64(0)
		for i < len(raw) && raw[i] >= '0' && raw[i] <= '9' && id <= 1<<31 {
			id = id*10 + int64(raw[i]-'0')
			i++
		}
		if i == start || id >= 1<<31 {
			return nil, fmt.Errorf("entry %d of the token ids is not a whole number from 0 to 2147483647: %s",
				len(dst), brief(raw[start:]))
		}
		dst = append(dst, int32(id))
		i = skipBlank(raw, i)
		if i >= len(raw) || (raw[i] != ',' && raw[i] != ']') {
			return nil, fmt.Errorf("after entry %d of the token ids: want , or ], got %s", len(dst)-1,
				brief(raw[min(i, len(raw)):]))
		}
		if raw[i] == ']' {
			return dst, nil
		}
		i = skipBlank(raw, i+1)
	}
}

// parseNumbers appends the numbers of a JSON array, each as it stands, so that they are passed on digit for digit. The
// array is taken from valid JSON; that each entry is a number is checked by its first character.
func parseNumbers(raw string, dst []string) ([]string, error) {
	i := skipBlank(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return nil, fmt.Errorf("want an array of log-probabilities, got %s", brief(raw))
	}
	i = skipBlank(raw, i+1)
	for i < len(raw) && raw[i] != ']' {
		start := i
		if raw[i] != '-' && (raw[i] < '0' || raw[i] > '9') {
			return nil, fmt.Errorf("log-probability %d is %s, want a number", len(dst), brief(raw[i:]))
		}
		for i < len(raw) && numeric[raw[i]] {
			i++
		}
		dst = append(dst, raw[start:i])
		if i = skipBlank(raw, i); i < len(raw) && raw[i] == ',' {
			i = skipBlank(raw, i+1)
		}
	}
	return dst, nil
}

// numeric marks the characters of a JSON number.
var numeric = [256]bool{'-': true, '+': true, '.': true, 'e': true, 'E': true, '0': true, '1': true, '2': true,
	'3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true}

// brief is the beginning of s, for messages.
func brief(s string) string {
	if len(s) == 0 {
		return "nothing"
	}
	return strconv.Quote(s[:min(len(s), 40)])
}

// longestMessage is the length of an error's message for a program, in bytes: it may hold parts of the request.
const longestMessage = 2000

// shortened is the beginning of a message.
func shortened(s string) string {
	if len(s) <= longestMessage {
		return s
	}
	return strings.ToValidUTF8(s[:longestMessage], "") + "…"
}
