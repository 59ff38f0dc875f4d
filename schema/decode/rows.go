package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
)

// fileOfRows reports a file of rows that no block can read. Of a file that is longer than headOfRows the rows in its
// first part are looked at. Ok: none was found to be broken.
func (d *Decoder) fileOfRows(attribute, file string, body *hclsyntax.Body) (ok bool) {
	known := d.Shared.code.facts.rowsOf(file, d.Shared.code.files)
	if known.broken == "" || body.Attributes[attribute] == nil {
		return true
	}
	d.report(diagnostic.Problem(body.Attributes[attribute].Expr.Range(), "Rows not readable",
		fmt.Sprintf("%q in %s: %s", attribute, d.Label, known.broken)))
	return false
}

// eachRow calls a function with the rows of JSON and the lines on which they begin, until it returns false or a row
// cannot be read.
func eachRow(data []byte, whole bool, call func(row []byte, line int) bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		for n, line := range lines(data, whole) {
			if len(bytes.TrimSpace(line)) > 0 && (!gjson.ParseBytes(line).IsObject() || !call(line, n)) {
				return
			}
		}
		return
	}
	r, at, counted := json.NewDecoder(bytes.NewReader(data)), 1, 0
	if _, err := r.Token(); err != nil {
		return
	}
	for r.More() {
		var row json.RawMessage
		if r.Decode(&row) != nil || !gjson.ParseBytes(row).IsObject() {
			return
		}
		begins := int(r.InputOffset()) - len(row)
		at, counted = at+bytes.Count(data[counted:begins], []byte("\n")), begins
		if !call(row, at) {
			return
		}
	}
}

// lines are the lines of a file's first part with their numbers. The last line of a part that is not whole is left out.
func lines(data []byte, whole bool) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for n := 1; len(data) > 0; n++ {
			line, rest, ends := bytes.Cut(data, []byte("\n"))
			if !ends && !whole || !yield(n, line) {
				return
			}
			data = rest
		}
	}
}

// brokenRows describes what is wrong with a file of rows, where, and what to do; empty: nothing was found.
func brokenRows(file string, files *function.Files) string {
	name := strings.ToLower(file)
	if strings.HasSuffix(name, ".parquet") {
		return brokenParquet(file, files)
	}
	if strings.HasSuffix(name, ".gz") {
		if problem := brokenGzip(file, files); problem != "" {
			return problem
		}
	}
	data, ending, whole := head(file, files)
	if ending == "" {
		return ""
	}
	end := len(data)
	if !whole {
		end = max(bytes.LastIndexByte(data, '\n'), 0) // a character may be cut
	}
	if !utf8.Valid(data[:end]) {
		return notText(file, data)
	}
	problem := ""
	switch {
	case ending == ".csv" || ending == ".tsv":
		problem = brokenTable(file, data[:end], ending)
	case ending == ".json" && bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")):
		problem = brokenList(file, data, whole)
	default:
		if problem = oneObject(file, data, whole); problem == "" {
			problem = brokenLines(file, data, whole, ending)
		}
	}
	if problem != "" && !whole {
		problem += fmt.Sprintf(" Of this large file the rows in the first %d MiB are looked at before a start.",
			headOfRows>>20)
	}
	return problem
}

func brokenGzip(file string, files *function.Files) string {
	data, err := files.Head(file, headOfRows)
	if err != nil {
		return ""
	}
	plain := file[:len(file)-len(".gz")]
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Sprintf("%s is no gzip file; it begins with %s. Name it %s if it is not compressed, or compress it with "+
			"gzip %s.", file, quoted(data), plain, plain)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(unpacked, headOfRows))
	if err != nil && (len(data) < headOfRows || !errors.Is(err, io.ErrUnexpectedEOF)) {
		return fmt.Sprintf("%s is no whole gzip file: %v. Copy it again, or compress it again.", file, err)
	}
	return ""
}

func brokenParquet(file string, files *function.Files) string {
	in, size, err := files.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = in.Close() }()
	var end [4]byte
	if size >= 12 {
		if _, err := in.ReadAt(end[:], size-int64(len(end))); err != nil {
			return ""
		}
	}
	if mark := string(end[:]); mark == "PAR1" || mark == "PARE" {
		return ""
	}
	return fmt.Sprintf("%s is no whole Parquet file: it does not end with PAR1. Write it or copy it again.", file)
}

// notText says on which line a file is not UTF-8.
func notText(file string, data []byte) string {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return fmt.Sprintf("%s is text in UTF-16; expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8.", file)
	}
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size <= 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return fmt.Sprintf("%s:%d: a byte is not text in UTF-8. Write the file in UTF-8, or convert it: iconv -f LATIN1 -t "+
		"UTF-8.", file, line)
}

// brokenTable reports a line with another number of fields than the first. Where quotes are not as RFC 4180 has them
// readers differ, and nothing more is reported.
func brokenTable(file string, data []byte, ending string) string {
	r := tableReader(data, ending)
	r.LazyQuotes, r.ReuseRecord = false, true
	if names, _, _ := bytes.Cut(data, []byte("\n")); ending == ".csv" && otherSeparator(names) != "" {
		return fmt.Sprintf("%s:1: the line of names has no comma, and fields that %s separate: %s. Separate the fields of "+
			"all lines by commas; one with tabs has a name that ends in .tsv.", file, otherSeparator(names),
			quoted(bytes.TrimSpace(names)))
	}
	separator := map[string]string{".csv": "comma", ".tsv": "tab"}[ending]
	for {
		row, err := r.Read()
		var wrong *csv.ParseError
		switch {
		case err == nil:
			continue
		case errors.As(err, &wrong) && errors.Is(err, csv.ErrFieldCount):
			return fmt.Sprintf("%s:%d: the line has %d fields, and the first line %d. Put quotes around fields that hold a "+
				"%s.", file, wrong.StartLine, len(row), r.FieldsPerRecord, separator)
		}
		return ""
	}
}

// otherSeparator is what separates the names in the first line of a table instead of commas; empty: nothing.
func otherSeparator(names []byte) string {
	switch {
	case bytes.ContainsAny(names, ",\""):
		return ""
	case bytes.Contains(names, []byte(";")):
		return "semicolons"
	case bytes.Contains(names, []byte("\t")):
		return "tabs"
	}
	return ""
}

// splits are names under which files of several parts have their rows.
var splits = []string{"train", "training", "test", "validation", "data", "rows", "examples", "instances", "questions"}

// oneObject reports a file that is one object with a list of rows in it.
func oneObject(file string, data []byte, whole bool) string {
	if !whole || !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || !json.Valid(data) {
		return ""
	}
	for _, name := range splits {
		if list := gjson.GetBytes(data, name); list.IsArray() && list.Get("0").IsObject() {
			return fmt.Sprintf("%s is one object, with rows in its member %q; expected a list of rows. Write the list to a "+
				"file of its own: jq .%s FILE > ROWS.json.", file, name, name)
		}
	}
	return ""
}

func brokenLines(file string, data []byte, whole bool, ending string) string {
	for n, line := range lines(data, whole) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || validObject(line) {
			continue
		}
		return fmt.Sprintf("%s:%d: expected a JSON object, got %s. %s", file, n, quoted(line), rowRemedy(line, n, ending))
	}
	return ""
}

func brokenList(file string, data []byte, whole bool) string {
	r := json.NewDecoder(bytes.NewReader(python(data)))
	at := func(err error) int {
		offset := int(r.InputOffset())
		if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) {
			offset = int(wrong.Offset)
		}
		return 1 + bytes.Count(data[:min(offset, len(data))], []byte("\n"))
	}
	_, _ = r.Token()
	for r.More() {
		var row json.RawMessage
		err := r.Decode(&row)
		switch {
		case err != nil && !whole:
			return "" // the end is not there, and of a row that is cut nothing is known
		case err != nil:
			return fmt.Sprintf("%s:%d: it is no list of JSON objects: %v. Correct the row, or write one object a line.", file,
				at(err), err)
		case !gjson.ParseBytes(row).IsObject():
			return fmt.Sprintf("%s:%d: expected a JSON object, got %s. Each element is a row: {\"column\": value}.", file,
				at(nil), quoted(row))
		}
	}
	if _, err := r.Token(); err != nil && whole {
		return fmt.Sprintf("%s:%d: the list does not end: a bracket ] is missing. Write or copy the file again.", file,
			1+bytes.Count(bytes.TrimSpace(data), []byte("\n")))
	}
	return ""
}

// unlike are numbers that Python reads and writes, and JSON does not have.
var unlike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b-?(?:NaN|Infinity)\b`) })

// python is JSON as Python reads it, for a reader that is stricter, in as many bytes.
func python(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	return unlike().ReplaceAllFunc(data, func(found []byte) []byte { return bytes.Repeat([]byte("1"), len(found)) })
}

func validObject(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("{")) {
		return false
	}
	return json.Valid(line) || json.Valid(unlike().ReplaceAll(line, []byte("0")))
}

// rowRemedy is what to do about a line that is no JSON object.
func rowRemedy(line []byte, n int, ending string) string {
	opens, closes := line[0] == '{', bytes.ContainsRune(line, '}')
	switch {
	case line[0] == '[' && ending != ".json" && n == 1:
		return "A list of objects is read from a file whose name ends in .json; here write one object a line."
	case len(line) == 1 && opens || bytes.HasSuffix(line, []byte(",")) && opens && !closes:
		return "Write each object on one line: jq -c . FILE does that."
	case opens && bytes.HasPrefix(bytes.TrimSpace(line[1:]), []byte("'")):
		return "JSON has double quotes: in Python json.dumps writes it, and str does not."
	case opens && bytes.HasSuffix(line, []byte("},")):
		return "Remove the comma at its end: one object a line, without commas between them."
	case !bytes.HasSuffix(line, []byte("}")):
		return "The line seems to be cut: write it again, or remove it."
	}
	return "Correct the line; python -m json.tool --json-lines FILE names the place in it."
}

// quoted is the beginning of a text for a message.
func quoted(data []byte) string {
	text := strings.ToValidUTF8(string(data[:min(len(data), 300)]), "\ufffd")
	return fmt.Sprintf("%q", diagnostic.Shortened(text))
}
