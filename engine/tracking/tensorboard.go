package tracking

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/recipe-rl/recipe/engine/event"
)

// board writes an event file of TensorBoard: records of an Event message of tensorflow, each with its length and two
// checksums.
type board struct {
	file *os.File
	err  error
}

// openBoard begins a file of its own: TensorBoard shows all files of a folder as one run.
func openBoard(dir string, now time.Time) (*board, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder for TensorBoard: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, boardName(now)), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the file for TensorBoard: %w", err)
	}
	b := &board{file: f}
	b.record(0, now, protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "brain.Event:2"))
	return b, b.err
}

// boardName is the name of a file begun at a time. TensorBoard reads a folder's files in the order of their names; what
// ends the name keeps two of one second apart and in order, for which it needs all nine digits.
func boardName(begun time.Time) string {
	return fmt.Sprintf("events.out.tfevents.%010d.recipe.%09d", begun.Unix(), begun.Nanosecond())
}

func (b *board) write(_ context.Context, e event.Event) error {
	switch e.Type {
	case event.Metrics:
		b.summary(e.Step, e.Time, scalars(e.Address, e.Metrics))
	case event.Machine: // a machine has no steps: the number of the event keeps its values in order
		prefix := "machine"
		if e.Host != "" { // of a machine of the block's job
			prefix += "/" + e.Host + "/" + e.Address
		}
		b.summary(int64(e.Seq), e.Time, scalars(prefix, e.Metrics)) //nolint:gosec // a count of events
	case event.Sample:
		b.summary(e.Version, e.Time, message(1, text("samples/"+environment(e), markdown(e))))
	}
	return b.err
}

// scalars are a Summary.Value for each metric.
func scalars(prefix string, metrics map[string]float64) (values []byte) {
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		var v []byte
		v = protowire.AppendString(protowire.AppendTag(v, 1, protowire.BytesType), prefix+"/"+name)
		v = protowire.AppendFixed32(protowire.AppendTag(v, 2, protowire.Fixed32Type),
			math.Float32bits(float32(metrics[name])))
		values = protowire.AppendBytes(protowire.AppendTag(values, 1, protowire.BytesType), v)
	}
	return values
}

func (b *board) summary(step int64, at time.Time, values []byte) {
	b.record(step, at, protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), values))
}

// record writes an Event with a time, a step and one more field.
func (b *board) record(step int64, at time.Time, field []byte) {
	var m []byte
	m = protowire.AppendFixed64(protowire.AppendTag(m, 1, protowire.Fixed64Type),
		math.Float64bits(float64(at.UnixNano())/1e9))
	m = protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), uint64(step)) //nolint:gosec // as protobuf
	m = append(m, field...)
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(m)))
	out = binary.LittleEndian.AppendUint32(out, checksum(out))
	out = append(out, m...)
	out = binary.LittleEndian.AppendUint32(out, checksum(m))
	if b.err == nil { // in one write, so that a reader meanwhile sees whole records
		_, b.err = b.file.Write(out)
	}
}

// checksum is the masked CRC-32C of TFRecord files.
func checksum(data []byte) uint32 {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

func message(field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
}

// text is a Summary.Value with a tensor of one string, for TensorBoard's plugin of texts.
func text(tag, content string) []byte {
	const dtString = 7
	var tensor []byte
	tensor = protowire.AppendVarint(protowire.AppendTag(tensor, 1, protowire.VarintType), dtString)
	size := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	tensor = append(tensor, message(2, message(2, size))...)
	tensor = append(tensor, message(8, []byte(content))...)
	v := message(1, []byte(tag))
	v = append(v, message(9, message(1, message(1, []byte("text"))))...)
	return append(v, message(8, tensor)...)
}

// markdown is a sample as a text that TensorBoard shows as it is: four spaces make a line code.
func markdown(e event.Event) string {
	return fmt.Sprintf("score %g, policy version %d\n\n%s\n\n---\n\n%s\n", e.Score, e.Version, indented(e.Prompt),
		indented(e.Completion))
}

// flush returns when what was written is on the disk.
func (b *board) flush(context.Context) error { return b.file.Sync() }

func (b *board) close(context.Context) error { return b.file.Close() }

func (b *board) abort() { _ = b.file.Close() }
