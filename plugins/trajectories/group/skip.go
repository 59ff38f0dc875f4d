package group

// The functions of this file walk over one value and return the index after it, or -1 when it is not what they expect.

// skipper walks over one value.
type skipper func(b []byte, i int) int

// lists walks over an array of arrays and notes the length of each.
func (r *Reader) lists(f, i int) int {
	b := r.body
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	integers := f == fieldTokens || f == fieldMasks
	for {
		var n int
		if integers {
			i, n = skipIntegers(b, i)
		} else {
			i, n = skipNumbers(b, i)
		}
		if i < 0 {
			return -1
		}
		r.lens[f] = append(r.lens[f], int32(n))
		r.counts[f]++
		i = skipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// skipIntegers walks over an array of integers and counts them.
func skipIntegers(b []byte, i int) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		if i = skipInteger(b, i); i < 0 {
			return -1, 0
		}
		count++
		if i+1 < len(b) && b[i] == ',' && b[i+1] == ' ' { // as Python writes it
			i += 2
			continue
		}
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// skipNumbers walks over an array of numbers and counts them.
func skipNumbers(b []byte, i int) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		if i = skipNumber(b, i); i < 0 {
			return -1, 0
		}
		count++
		if i+1 < len(b) && b[i] == ',' && b[i+1] == ' ' {
			i += 2
			continue
		}
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// next moves past the comma after an element; more is false at the end of the array, where the index is the one after
// it, or -1 when something else follows.
func next(b []byte, i int) (at int, more bool) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return -1, false
	}
	switch b[i] {
	case ',':
		return skipSpace(b, i+1), true
	case ']':
		return i + 1, false
	}
	return -1, false
}

// skipList walks over an array with the given walker for its elements, and counts them.
func skipList(b []byte, i int, element skipper) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		if i = element(b, i); i < 0 {
			return -1, 0
		}
		count++
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// skipDeep walks over an array of arrays.
func skipDeep(element skipper) skipper {
	return func(b []byte, i int) int {
		end, _ := skipList(b, i, func(b []byte, i int) int {
			end, _ := skipList(b, i, element)
			return end
		})
		return end
	}
}

func skipObject(b []byte, i int) int {
	if i >= len(b) || b[i] != '{' {
		return -1
	}
	return skipValue(b, i, 2)
}

// skipConversation walks over a list of messages, each with a role and a content.
func skipConversation(b []byte, i int) int {
	end, _ := skipList(b, i, func(b []byte, i int) int {
		var role, content bool
		end := skipMembers(b, i, 3, func(key []byte) bool {
			role = role || string(key) == "role"
			content = content || string(key) == "content"
			return true
		})
		if !role || !content {
			return -1 // or the keys are written with escapes, which the exact reader knows
		}
		return end
	})
	return end
}

// skipValue walks over any value.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) || depth > maxDepth {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipMembers(b, i, depth, nil)
	case c == '[':
		end, _ := skipList(b, i, func(b []byte, i int) int { return skipValue(b, i, depth+1) })
		return end
	case c == 't':
		return word(b, i, "true")
	case c == 'f':
		return word(b, i, "false")
	case c == 'n':
		return word(b, i, "null")
	}
	return skipNumber(b, i)
}

// skipMembers walks over an object and shows its keys.
func skipMembers(b []byte, i, depth int, see func(key []byte) bool) int {
	if i >= len(b) || b[i] != '{' || depth > maxDepth {
		return -1
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := skipString(b, i)
		if end < 0 || see != nil && !see(b[i+1:end-1]) {
			return -1
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = skipValue(b, skipSpace(b, i+1), depth+1); i < 0 {
			return -1
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// word walks over a literal.
func word(b []byte, i int, w string) int {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}
