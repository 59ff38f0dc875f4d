package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// everyMember reports the first task without one of some members.
func (d *Decoder) everyMember(c claim, file string, members []string) {
	lacks := ""
	place := d.firstRow(file, func(row []byte) bool {
		i := slices.IndexFunc(members, func(name string) bool { return !member(row, name).Exists() })
		if i >= 0 {
			lacks = members[i]
		}
		return i >= 0
	})
	if place != "" {
		d.report(diagnostic.Problem(c.at, "Member not found", fmt.Sprintf("%q in %s: the task at %s has no member %q. Add "+
			"it, or remove the task.", c.attribute.Name, c.where, place, lacks)))
	}
}

// everyValue reports the first row that has no value in a column, or a prompt that is no text and no list of messages
// where the column has prompts.
func (d *Decoder) everyValue(c claim, file, column string) {
	lacks, wrong, hint := "", "", ""
	place := d.firstRow(file, func(row []byte) bool {
		switch v := member(row, column); {
		case !v.Exists():
			lacks, hint = "nothing", diagnostic.DidYouMean(column, namesOf(row))
		case v.Type == gjson.Null:
			lacks = "null"
		case v.Type == gjson.String && v.Str == "":
			lacks = "an empty text"
		case c.attribute.Columns.Messages:
			wrong = wrongPrompt(v)
		}
		return lacks != "" || wrong != ""
	})
	switch {
	case place == "" || d.reported(place):
	case wrong != "":
		d.report(diagnostic.Problem(c.at, "Prompt not usable", fmt.Sprintf("%q in %s: the row at %s has in the column %q %s",
			c.attribute.Name, c.where, place, column, wrong)))
	default:
		d.report(diagnostic.Problem(c.at, "Value missing", fmt.Sprintf("%q in %s: the row at %s has %s in the column %q. "+
			"Every row needs a value there: add it, or remove the row.%s", c.attribute.Name, c.where, place, lacks, column,
			hint)))
	}
}

// trainedOn reports rows that are kept back and whose prompt other rows have, too: an evaluation would measure what was
// trained.
func (d *Decoder) trainedOn(c claim, file string, kept int64) {
	i := slices.IndexFunc(d.claimed, func(other claim) bool {
		of := other.attribute.Columns
		return of.Messages && of.Of == c.attribute.Columns.Of
	})
	if i < 0 {
		return
	}
	column, n := d.claimed[i].value.AsString(), int64(0)
	held := map[string]int64{} // how many rows are kept back, by prompt
	var same int64
	d.firstRow(file, func(row []byte) bool {
		prompt := member(row, column).Raw
		if n++; n <= kept {
			held[prompt]++
			return false
		}
		same += held[prompt]
		delete(held, prompt)
		return n > kept && len(held) == 0
	})
	if same > 0 {
		d.report(diagnostic.Warning(c.at, "Held-out rows that are trained on", fmt.Sprintf("%q in %s keeps back %d rows of "+
			"%s, and %d of them have a prompt that a row for training has, too: evaluations measure what was trained. "+
			"Remove rows with the same prompt.", c.attribute.Name, c.where, kept, file, same)))
	}
}

// everyCall reports the first row with which a function cannot be called: it lacks a column that the function needs, or
// has one that the function does not take.
func (d *Decoder) everyCall(c claim, code spec.Code, signature spec.Signature, file string) {
	if signature.Decorator != "" {
		return // what it passes on is not known
	}
	of, lacks, refused := c.attribute.Columns, "", ""
	var columns []string
	place := d.firstRow(file, func(row []byte) bool {
		if columns = namesOf(row); len(columns) > maxColumns {
			return false
		}
		for _, argument := range signature.Needed {
			if !slices.Contains(of.Given, argument) && !slices.Contains(columns, argument) {
				lacks = argument
				return true
			}
		}
		if of.Every && !signature.Rest {
			for _, name := range columns {
				if !slices.Contains(of.Given, name) && !slices.Contains(of.LeftOut, name) &&
					!slices.Contains(signature.Taken, name) {
					refused = name
					return true
				}
			}
		}
		return false
	})
	switch {
	case place == "" || d.reported(place):
	case lacks != "":
		d.report(diagnostic.Problem(c.at, "Column not found", fmt.Sprintf("%q in %s: the row at %s has no %q, which %s of "+
			"%s needs. It has %s.%s Add it, remove the row, or give the argument a default value.", c.attribute.Name, c.where,
			place, diagnostic.Shortened(lacks), code.Function, code.File, diagnostic.Some(columns),
			diagnostic.DidYouMean(lacks, columns))))
	default:
		d.report(diagnostic.Problem(c.at, "Arguments not taken", fmt.Sprintf("%q in %s: %s of %s does not take %q, a column "+
			"of the row at %s. Write **kwargs behind its arguments, or remove the column.", c.attribute.Name, c.where,
			code.Function, code.File, diagnostic.Shortened(refused), place)))
	}
}

// reported reports whether a row has a mistake that is reported already: one that is of another kind lacks several
// columns, and is one mistake.
func (d *Decoder) reported(place string) bool {
	before := d.badRows[place]
	d.badRows[place] = true
	return before
}

// someRow reports whether a row has a column. Where not all rows are read one may.
func (d *Decoder) someRow(file, column string) bool {
	place, all := d.Shared.code.facts.firstRow(file, d.Shared.code.files, func(row []byte) bool {
		return member(row, column).Exists()
	})
	return place != "" || !all
}

// firstRow is the place of the first row for which a test holds, file:line; empty: it holds for none that is read.
func (d *Decoder) firstRow(file string, test func(row []byte) bool) string {
	place, _ := d.Shared.code.facts.firstRow(file, d.Shared.code.files, test)
	return place
}

// firstRow goes through rows of JSON, and of tables as JSON. All: these are all rows of the file.
func (f *facts) firstRow(file string, files *function.Files, test func(row []byte) bool) (place string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rowsWork += workOfRows(file, files) / 3; f.rowsWork > maxRowsWork {
		return "", false
	}
	data, ending, whole := head(file, files)
	goes := eachRow
	switch ending {
	case "", ".parquet":
		return "", ending == ".parquet" // whose columns are those of its footer
	case ".csv", ".tsv":
		goes = eachLine(ending)
	}
	goes(data, whole, func(row []byte, line int) bool {
		if test(row) {
			place = fmt.Sprintf("%s:%d", file, line)
		}
		return place == ""
	})
	return place, whole
}

// eachLine is eachRow for a table. It ends where quotes are not as RFC 4180 has them, since readers differ there.
func eachLine(ending string) func(data []byte, whole bool, call func(row []byte, line int) bool) {
	return func(data []byte, whole bool, call func(row []byte, line int) bool) {
		if !whole {
			data = data[:bytes.LastIndexByte(data, '\n')+1]
		}
		r := tableReader(data, ending)
		r.LazyQuotes = false
		names, err := r.Read()
		for err == nil {
			var fields []string
			if fields, err = r.Read(); err != nil {
				return
			}
			row := map[string]string{}
			for i, name := range names {
				row[name] = fields[i]
			}
			line, _ := r.FieldPos(0)
			text, _ := json.Marshal(row) // texts
			if !call(text, line) {
				return
			}
		}
	}
}

// namesOf are the names in an object, up to one more than maxColumns.
func namesOf(row []byte) (names []string) {
	gjson.ParseBytes(row).ForEach(func(name, _ gjson.Result) bool {
		names = append(names, name.Str)
		return len(names) <= maxColumns
	})
	return names
}

// member is the value of a name in an object, without gjson's paths.
func member(row []byte, name string) (found gjson.Result) {
	gjson.ParseBytes(row).ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			found = value // the last counts, as in Python
		}
		return true
	})
	return found
}

// wrongPrompt says what a prompt is that is neither a text nor a list of messages, and what to do; empty: it is one.
func wrongPrompt(prompt gjson.Result) string {
	const want = `expected a text, or a list of messages like {"role": "user", "content": "…"}.`
	if prompt.Type == gjson.String {
		return ""
	}
	if !prompt.IsArray() || len(prompt.Array()) == 0 {
		return fmt.Sprintf("%s; %s", quoted([]byte(prompt.Raw)), want)
	}
	for _, m := range prompt.Array() {
		role, content, calls := m.Get("role"), m.Get("content"), m.Get("tool_calls")
		switch {
		case m.IsObject() && role.Type == gjson.String && (content.Type == gjson.String || content.IsArray()):
		case m.IsObject() && role.Str == "assistant" && calls.IsArray(): // a turn of calls of tools
		case m.Get("from").Exists() && m.Get("value").Exists():
			return fmt.Sprintf("messages of ShareGPT, such as %s; %s Write role for \"from\" (user for human, assistant for "+
				"gpt) and content for \"value\", and leave out the last turn where it is the answer.", quoted([]byte(m.Raw)), want)
		default:
			return fmt.Sprintf("a message %s; %s", quoted([]byte(m.Raw)), want)
		}
		for _, part := range content.Array() {
			if content.IsArray() && part.Get("type").Str != "text" {
				return fmt.Sprintf("a message with a part that is no text, %s: only texts can be sent. Write {\"type\": \"text\", "+
					"\"text\": \"…\"}, or remove the row.", quoted([]byte(part.Raw)))
			}
		}
	}
	return ""
}
