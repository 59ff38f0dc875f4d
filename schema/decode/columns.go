package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/tidwall/gjson"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// claim is an attribute whose value names columns of a file of rows, or says how many of its rows are kept back.
type claim struct {
	attribute *spec.Attribute
	value     cty.Value
	at        hcl.Range // zero: the value is the default
	where     string
	members   []string // of a task, which an attribute that is PerTask names
}

// claims records an attribute that names columns. Of one that is filled in for each task, perTask does.
func (d *Decoder) claims(a *spec.Attribute, v cty.Value, attr *hclsyntax.Attribute, where string) {
	if a.Columns == nil || a.PerTask || d.Running || v.IsMarked() || v.IsNull() || !v.IsKnown() ||
		v.Type() != cty.String && v.Type() != cty.Number {
		return
	}
	c := claim{attribute: a, value: v, where: where}
	if attr != nil {
		c.at = attr.Expr.Range()
	}
	d.claimed = append(d.claimed, c)
}

// columns reports attributes that name columns which the file of rows lacks. Only its first row is read. Where the file
// is none that can be read here, as a data set of a hub, nothing is reported: the block does that when it starts.
func (d *Decoder) columns(body *hclsyntax.Body) {
	read := map[string]bool{} // whether a file can be read, by the attribute that names it
	d.badRows = map[string]bool{}
	for _, c := range d.claimed {
		of := c.attribute.Columns.Of
		file := d.rows[of]
		calls := c.attribute.Format == spec.FormatCallable || c.attribute.Format == spec.FormatCode
		if file == "" && !calls || d.Values.Enough() {
			continue
		}
		if _, asked := read[of]; file != "" && !asked {
			read[of] = d.fileOfRows(of, file, body)
		}
		if file != "" && !read[of] && !calls { // what follows from rows that cannot be read is no other mistake
			continue
		}
		if c.members == nil && c.value.Type() == cty.Number {
			d.keptBack(c, file, body)
			continue
		}
		var columns []string
		if read[of] {
			columns = d.Shared.code.facts.rowsOf(file, d.Shared.code.files).columns
		}
		if c.at == (hcl.Range{}) && c.attribute.Columns.Optional {
			continue // the recipe does not write it
		}
		if c.at == (hcl.Range{}) && body.Attributes[of] != nil {
			c.at = body.Attributes[of].Expr.Range()
		}
		switch {
		case calls:
			d.called(c, file, columns)
		case len(columns) == 0:
		case c.members != nil:
			if d.compareMembers(c, file, columns) && read[of] {
				d.everyMember(c, file, c.members)
			}
		default:
			if d.named(c, file, columns) && read[of] && !c.attribute.Columns.Optional {
				d.everyValue(c, file, c.value.AsString())
			}
		}
	}
}

// keptBack reports a number of rows that leaves none of the file.
func (d *Decoder) keptBack(c claim, file string, body *hclsyntax.Body) {
	kept, _ := c.value.AsBigFloat().Int64()
	known := d.Shared.code.facts.rowsOf(file, d.Shared.code.files)
	rows := known.rows
	if c.at == (hcl.Range{}) {
		c.at = body.Attributes[c.attribute.Columns.Of].Expr.Range()
	}
	if !known.counted || rows > kept {
		d.trainedOn(c, file, kept)
		return
	}
	remedy := "Add rows."
	if rows > 1 {
		remedy = fmt.Sprintf("Write a smaller number, such as %s = %d, or add rows.", c.attribute.Name, max(rows/5, 1))
	}
	d.report(diagnostic.Problem(c.at, "Too few rows", fmt.Sprintf("%q in %s keeps back %d rows, and %s has %d: none is "+
		"left. %s",
		c.attribute.Name, c.where, kept, file, rows, remedy)))
}

// named reports the name of a column that the file lacks. Ok: it has it.
func (d *Decoder) named(c claim, file string, columns []string) (ok bool) {
	name := c.value.AsString()
	if slices.Contains(columns, name) || c.attribute.Columns.Optional && (name == "" || d.someRow(file, name)) {
		return true
	}
	d.report(diagnostic.Problem(c.at, "Column not found", fmt.Sprintf("%q in %s: %s has no column %q. It has %s.%s",
		c.attribute.Name, c.where, file, name, diagnostic.Some(columns), diagnostic.DidYouMean(name, columns))))
	return false
}

// called compares what a function takes with what it is called with. No columns: they are not known.
func (d *Decoder) called(c claim, file string, columns []string) {
	code, err := spec.ParseCode(c.value.AsString())
	if err != nil {
		return // in a module
	}
	source, err := d.Shared.code.load(code.File)
	if err != nil {
		return
	}
	known, ok := d.Shared.code.facts.of(code.File, source)
	if !ok {
		return // said where the attribute was decoded
	}
	signature, ok := known.parameters(code.Function)
	if !ok {
		return
	}
	taken := d.notTaken(c, code, signature, columns)
	if len(columns) > 0 && d.lacking(c, code, signature, file, columns) && taken {
		d.everyCall(c, code, signature, file)
	}
}

// notTaken reports a function that fails at each call, since it is called with arguments that it does not take. Ok: it
// takes all of them.
func (d *Decoder) notTaken(c claim, code spec.Code, signature spec.Signature, columns []string) (ok bool) {
	of := c.attribute.Columns
	if len(signature.Positional) > 0 {
		d.report(diagnostic.Problem(c.at, "Arguments not taken", fmt.Sprintf("%q in %s: %s of %s takes %q by position only, "+
			"and it is called by name. Remove the / behind it.", c.attribute.Name, c.where, code.Function, code.File,
			signature.Positional[0])))
		return false
	}
	var refused []string
	for _, argument := range slices.Concat(of.Given, columns) {
		leftOut := slices.Contains(of.LeftOut, argument) && !slices.Contains(of.Given, argument)
		quoted := strconv.Quote(diagnostic.Shortened(argument))
		if !leftOut && !slices.Contains(signature.Taken, argument) && !slices.Contains(refused, quoted) {
			refused = append(refused, quoted)
		}
	}
	if !of.Every || signature.Rest || len(refused) == 0 {
		return true
	}
	d.report(diagnostic.Problem(c.at, "Arguments not taken", fmt.Sprintf("%q in %s: %s of %s does not take %s, which it "+
		"is called with by name. Write **kwargs behind its arguments.", c.attribute.Name, c.where, code.Function,
		code.File, diagnostic.Some(refused))))
	return false
}

// lacking reports columns that a function needs and that the first row of the file lacks. Ok: it lacks none.
func (d *Decoder) lacking(c claim, code spec.Code, signature spec.Signature, file string, columns []string) (ok bool) {
	of, decorator := c.attribute.Columns, signature.Decorator
	hint, lacks := "", []string{}
	for _, argument := range signature.Needed {
		passed := slices.Contains(columns, argument) && !slices.Contains(of.LeftOut, argument)
		if !passed && !slices.Contains(of.Given, argument) {
			lacks = append(lacks, strconv.Quote(diagnostic.Shortened(argument)))
			if len(lacks) > diagnostic.MaxListed {
				continue
			}
			hint += diagnostic.DidYouMean(argument, columns)
		}
	}
	if len(lacks) == 0 {
		return true
	}
	if len(lacks) > diagnostic.MaxListed {
		lacks = append(lacks[:diagnostic.MaxListed], fmt.Sprintf("%d more", len(lacks)-diagnostic.MaxListed))
	}
	lacking, besides := strings.Join(lacks, " and "), ""
	if len(of.Given) > 0 {
		besides = fmt.Sprintf(" Besides columns a function gets %s.", strings.Join(of.Given, ", "))
	}
	if decorator != "" {
		d.report(diagnostic.Warning(c.at, "Columns not checked", fmt.Sprintf("%q in %s: %s of %s needs %s, which %s does "+
			"not have as a "+
			"column, unless its decorator @%s gives it. The block finds out when it starts. The file has %s.%s",
			c.attribute.Name, c.where, code.Function, code.File, lacking, file, decorator,
			diagnostic.Some(columns), hint)))
		return false
	}
	d.report(diagnostic.Problem(c.at, "Column not found", fmt.Sprintf("%q in %s: %s of %s needs %s, which %s does not "+
		"have as a "+
		"column. It has %s.%s%s", c.attribute.Name, c.where, code.Function, code.File, lacking, file,
		diagnostic.Some(columns), hint, besides)))
	return false
}

// headOfRows is how much of a file is read for its columns. In a file with a longer first row none are known,
// and of a longer file not how many rows it has.
const headOfRows = 4 << 20

// columnsOf are the columns of a file's first row, in their order; none: they are not known.
func columnsOf(file string, files *function.Files) []string {
	data, ending, _ := head(file, files)
	switch {
	case ending == ".parquet":
		footer, _ := parquetFooter(file, files)
		return fewEnough(footer.columns)
	case ending == ".csv" || ending == ".tsv":
		columns, _ := tableReader(data, ending).Read()
		return fewEnough(columns)
	}
	var columns []string
	row, _ := rowsOfJSON(data, 1)
	gjson.ParseBytes(row).ForEach(func(name, _ gjson.Result) bool {
		columns = append(columns, name.String())
		return len(columns) <= maxColumns
	})
	return fewEnough(columns)
}

// fewEnough are the columns; none where there are too many.
func fewEnough(columns []string) []string {
	if len(columns) > maxColumns {
		return nil
	}
	return columns
}

// workOfRows is about how many bytes columnsOf, rowsOf and brokenRows go through.
func workOfRows(file string, files *function.Files) int {
	in, size, err := files.Open(file)
	if err != nil {
		return 0
	}
	_ = in.Close()
	switch ending := path.Ext(strings.ToLower(file)); ending {
	case ".gz":
		return 4 * headOfRows
	case ".parquet":
		return 2 * footerWork * int(min(size, headOfFooter))
	}
	return 3 * int(min(size, headOfRows))
}

// Rows are the columns of a file of rows, from its first row, and how many rows it has; none: they are not known.
func Rows(file string) (columns []string, rows int64) {
	files := &function.Files{Dir: "."}
	rows, _ = rowsOf(file, files)
	return columnsOf(file, files), rows
}

// NamesRows reports whether a file has the name of a file of rows.
func NamesRows(file string) bool {
	ending := path.Ext(strings.TrimSuffix(strings.ToLower(file), ".gz"))
	return slices.Contains(endingsOfRows(), ending) || ending == ".parquet"
}

// endingsOfRows are the endings of files of rows that are text.
func endingsOfRows() []string { return []string{".jsonl", ".ndjson", ".json", ".csv", ".tsv"} }

// rowsOf is how many rows a file has. Not ok: it is not known, as of one that is too large to be read for it.
func rowsOf(file string, files *function.Files) (rows int64, ok bool) {
	data, ending, whole := head(file, files)
	switch {
	case ending == ".parquet":
		footer, ok := parquetFooter(file, files)
		return footer.rows, ok
	case !whole || ending == "":
		return 0, false
	case ending == ".csv" || ending == ".tsv":
		r := tableReader(data, ending)
		r.ReuseRecord, r.FieldsPerRecord = true, -1
		for rows = -1; ; rows++ { // the first line has the names
			if _, err := r.Read(); err != nil {
				return max(rows, 0), errors.Is(err, io.EOF)
			}
		}
	}
	_, n := rowsOfJSON(data, math.MaxInt)
	none := len(bytes.Trim(data, "[] \t\r\n")) == 0 // else it has no rows because it cannot be read
	return int64(n), n > 0 || none
}

// head is the first part of a file of rows, decompressed, and its ending without .gz; "": it is no such file. Whole:
// this is all of it. A Parquet file is not read.
func head(file string, files *function.Files) (data []byte, ending string, whole bool) {
	name := strings.ToLower(file)
	packed := path.Ext(name) == ".gz"
	ending = path.Ext(strings.TrimSuffix(name, ".gz"))
	if ending == ".parquet" && !packed {
		return nil, ending, false
	}
	if !slices.Contains(endingsOfRows(), ending) {
		return nil, "", false
	}
	data, err := files.Head(file, headOfRows)
	if err != nil {
		return nil, "", false
	}
	whole = len(data) < headOfRows
	if packed {
		unpacked, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, "", false
		}
		data, err = io.ReadAll(io.LimitReader(unpacked, headOfRows)) // the end may be missing
		whole = err == nil && len(data) < headOfRows
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), ending, whole
}

func tableReader(data []byte, ending string) *csv.Reader {
	r := csv.NewReader(bytes.NewReader(data))
	r.LazyQuotes = true
	if ending == ".tsv" {
		r.Comma = '\t'
	}
	return r
}

// rowsOfJSON reads up to limit rows, of a list of objects or of one object a line, and returns the first and how many
// there are; none when another value comes.
func rowsOfJSON(data []byte, limit int) (first json.RawMessage, rows int) {
	r := json.NewDecoder(bytes.NewReader(data))
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		if _, err := r.Token(); err != nil {
			return nil, 0
		}
	}
	for rows < limit && r.More() {
		var row json.RawMessage
		if r.Decode(&row) != nil || !gjson.ParseBytes(row).IsObject() {
			return nil, 0
		}
		if rows++; first == nil {
			first = row
		}
	}
	return first, rows
}

// footerOfParquet is what the footer of a Parquet file has of its columns.
type footerOfParquet struct {
	columns []string
	rows    int64
}

// schemaElement is a column of a footer, or a group of columns: parquet.thrift of the format, by field number.
type schemaElement struct {
	Name     string             `thrift:"4"`
	Children thrift.Null[int32] `thrift:"5,optional"`
}

// headOfFooter is how much of a footer is read: columns and the number of rows come first in it. Structures nest, and
// reading them takes some hundred bytes of memory for each byte.
const headOfFooter = 256 << 10

// parquetFooter reads the footer of a Parquet file as far as the number of rows. The library's own reader believes the
// lengths that a file gives its lists, and panics where a footer contradicts itself; the file may be a stranger's.
func parquetFooter(file string, files *function.Files) (out footerOfParquet, ok bool) {
	in, size, err := files.Open(file)
	if err != nil {
		return out, false
	}
	defer func() { _ = in.Close() }()
	var end [8]byte // the length of the footer, and a mark
	if _, err := in.ReadAt(end[:], size-int64(len(end))); err != nil || string(end[4:]) != "PAR1" {
		return out, false
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if length > size-int64(len(end)) {
		return out, false
	}
	footer := make([]byte, min(length, headOfFooter))
	if _, err := in.ReadAt(footer, size-int64(len(end))-length); err != nil {
		return out, false
	}
	r := new(thrift.CompactProtocol).NewReaderFromBytes(footer)
	next := func(kind thrift.Type) bool { // whether the field of the next number follows: version, schema, number of rows
		f, err := r.ReadField()
		return err == nil && f.Delta && f.ID == 1 && f.Type == kind
	}
	if !next(thrift.I32) {
		return out, false
	}
	if _, err := r.ReadInt32(); err != nil || !next(thrift.LIST) {
		return out, false
	}
	if out.columns, ok = topColumns(r); !ok || !next(thrift.I64) {
		return out, false
	}
	out.rows, err = r.ReadInt64()
	return out, err == nil && out.rows >= 0
}

// topColumns reads the list of a schema's elements, depth first, and returns the names of those below the root.
func topColumns(r thrift.Reader) (names []string, ok bool) {
	list, err := r.ReadList()
	if err != nil || list.Type != thrift.STRUCT {
		return nil, false
	}
	decoder, below := thrift.NewDecoder(r), int64(0)
	for i := range list.Size {
		var e schemaElement
		if err := decoder.Decode(&e); err != nil || e.Children.V < 0 {
			return nil, false
		}
		switch {
		case i == 0: // the root
			continue
		case below == 0:
			names = append(names, e.Name)
		default:
			below--
		}
		below += int64(e.Children.V)
	}
	return names, true
}
