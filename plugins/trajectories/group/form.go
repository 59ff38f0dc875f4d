package group

import "strconv"

// Form reads the flat objects of the other routes with the same conversions and the same messages as groups.
type Form struct {
	root node
	c    complaints
	at   *path
}

// ParseForm reads a JSON object. The error is a *SyntaxError, an *Invalid or ErrEncoding.
func ParseForm(body []byte) (*Form, error) {
	root, err := tree(body)
	if err != nil {
		return nil, err
	}
	f := &Form{root: root, at: (*path)(nil).to("body")}
	if root.kind != kindObject {
		f.c.add(
			f.at,
			"model_attributes_type",
			"Input should be a valid dictionary or object to extract fields from",
			&root,
			nil,
		)
		return nil, f.c.err()
	}
	return f, nil
}

// Err reports all mistakes in the fields read so far, as an *Invalid.
func (f *Form) Err() error { return f.c.err() }

// Has reports whether a field is there and not null.
func (f *Form) Has(name string) bool {
	n := f.root.get(name)
	return n != nil && n.kind != kindNull
}

func (f *Form) field(name string, read leaf) string {
	n := f.root.get(name)
	if n == nil {
		f.c.add(f.at.to(name), "missing", "Field required", &f.root, nil)
		return ""
	}
	return string(read(&f.c, nil, n, f.at.to(name)))
}

// Int reads a required integer of at least least.
func (f *Form) Int(name string, least int64) int64 {
	text := f.field(name, (*complaints).integer)
	if text == "" {
		return 0
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f.c.add(
			f.at.to(name),
			"int_parsing_size",
			"Unable to parse input string as an integer, exceeded maximum size",
			f.root.get(name),
			nil,
		)
		return 0
	}
	if v < least {
		f.c.add(
			f.at.to(name),
			"greater_than_equal",
			"Input should be greater than or equal to "+strconv.FormatInt(least, 10),
			f.root.get(name),
			map[string]any{"ge": least},
		)
	}
	return v
}

// Int32 reads a required integer of at least least that an int32 holds, so that products of a few of them do not
// overflow.
func (f *Form) Int32(name string, least int64) int64 {
	v, err := strconv.ParseInt(f.field(name, integerFrom(least)), 10, 64)
	if err != nil {
		return 0 // already reported
	}
	return v
}

// Float reads a required finite number.
func (f *Form) Float(name string) float64 {
	v, err := strconv.ParseFloat(f.field(name, (*complaints).float), 64)
	if err != nil {
		return 0
	}
	return v
}

// Bool reads a required truth value.
func (f *Form) Bool(name string) bool {
	return f.field(name, func(c *complaints, dst []byte, n *node, at *path) []byte {
		if n.kind != kindBool {
			c.add(at, "bool_type", "Input should be a valid boolean", n, nil)
			return dst
		}
		return append(dst, n.raw...)
	}) == "true"
}

// String reads a required string.
func (f *Form) String(name string) string {
	return f.field(name, func(c *complaints, dst []byte, n *node, at *path) []byte {
		if n.kind != kindString {
			c.add(at, "string_type", "Input should be a valid string", n, nil)
			return dst
		}
		return append(dst, unquote(n.raw)...)
	})
}
