// Package columns writes batches as Arrow IPC streams, which a trainer reads without parsing numbers.
//
// The stream has one row a group. Nested lists of int32 carry tokens and masks, nested lists of float64 the scores,
// advantages and log-probabilities: every value equals that of the JSON reply. The column rest holds all other fields
// as a JSON object. A group that does not fit (ids beyond 32 bits, integers that a double cannot hold) has null in all
// columns but rest, which then is the whole group. The schema's metadata carries the other fields of the JSON reply: id
// and lease_seconds.
package columns

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
)

// ContentType is the media type in the Accept of requests and the Content-Type of replies.
const ContentType = "application/vnd.apache.arrow.stream"

// The columns, in their order.
const (
	columnTokens = iota
	columnMasks
	columnScores
	columnAdvantages
	columnRefLogprobs
	columnLogprobs
	columnRest
)

func schema(about map[string]string) *arrow.Schema {
	lists := func(name string, of arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.ListOf(arrow.ListOf(of)), Nullable: true}
	}
	double := arrow.PrimitiveTypes.Float64
	metadata := arrow.MetadataFrom(about)
	return arrow.NewSchema([]arrow.Field{
		columnTokens: lists(
			"tokens",
			arrow.PrimitiveTypes.Int32,
		), columnMasks: lists("masks", arrow.PrimitiveTypes.Int32),
		columnScores:     {Name: "scores", Type: arrow.ListOf(double), Nullable: true},
		columnAdvantages: lists("advantages", double), columnRefLogprobs: lists("ref_logprobs", double),
		columnLogprobs: lists("inference_logprobs", double),
		columnRest:     {Name: "rest", Type: arrow.BinaryTypes.String},
	}, &metadata)
}

// pieceBytes is how much JSON goes into one record batch of the stream: what is in memory at once.
const pieceBytes = 1 << 20

// Writer writes one stream.
type Writer struct {
	out     *ipc.Writer
	build   *array.RecordBuilder
	reader  group.Reader
	columns group.Columns
	size    int
}

// NewWriter begins a stream. about becomes the schema's metadata.
func NewWriter(w io.Writer, about map[string]string) *Writer {
	s := schema(about)
	return &Writer{out: ipc.NewWriter(w, ipc.WithSchema(s)), build: array.NewRecordBuilder(memory.DefaultAllocator, s)}
}

// Write appends a group, given as its canonical JSON.
func (w *Writer) Write(json []byte) error {
	c := &w.columns
	if w.reader.Columns(json, c) {
		fields := w.build.Fields()
		appendLists(
			fields[columnTokens],
			&c.Tokens,
			func(b array.Builder, v []int32) { b.(*array.Int32Builder).AppendValues(v, nil) },
		)
		appendLists(
			fields[columnMasks],
			&c.Masks,
			func(b array.Builder, v []int32) { b.(*array.Int32Builder).AppendValues(v, nil) },
		)
		scores := fields[columnScores].(*array.ListBuilder)
		scores.Append(true)
		doubles(scores.ValueBuilder(), c.Scores)
		appendLists(fields[columnAdvantages], &c.Advantages, doubles)
		appendLists(fields[columnRefLogprobs], &c.RefLogprobs, doubles)
		appendLists(fields[columnLogprobs], &c.Logprobs, doubles)
		fields[columnRest].(*array.StringBuilder).BinaryBuilder.Append(c.Rest)
	} else {
		for _, b := range w.build.Fields()[:columnRest] {
			b.AppendNull()
		}
		w.build.Field(columnRest).(*array.StringBuilder).BinaryBuilder.Append(json)
	}
	if w.size += len(json); w.size >= pieceBytes {
		return w.flush()
	}
	return nil
}

func doubles(b array.Builder, v []float64) { b.(*array.Float64Builder).AppendValues(v, nil) }

func appendLists[T any](field array.Builder, l *group.Lists[T], values func(array.Builder, []T)) {
	outer := field.(*array.ListBuilder)
	if !l.Given {
		outer.AppendNull()
		return
	}
	outer.Append(true)
	inner := outer.ValueBuilder().(*array.ListBuilder)
	from := 0
	for _, to := range l.Ends {
		inner.Append(true)
		values(inner.ValueBuilder(), l.Values[from:to])
		from = to
	}
}

func (w *Writer) flush() error {
	w.size = 0
	batch := w.build.NewRecordBatch()
	defer batch.Release()
	if err := w.out.Write(batch); err != nil {
		return fmt.Errorf("writing a batch as an Arrow stream: %w", err)
	}
	return nil
}

// Close writes the remaining groups and the end of the stream.
func (w *Writer) Close() error {
	defer w.build.Release()
	if w.size > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.out.Close(); err != nil {
		return fmt.Errorf("ending an Arrow stream: %w", err)
	}
	return nil
}
