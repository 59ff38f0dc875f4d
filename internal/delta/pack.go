package delta

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The forms of a part. Measured with two consecutive checkpoints of SmolLM2-135M (docs/benchmarks/clusters.md): in
// bfloat16, where 0.75 % of the elements change in a step, changes take 0.8 % of the bytes and planes 1.3 %; in
// float32, where 99 % of them do, both take 42 %, and planes take half the time.
const (
	same    = "same"    // as in the base: nothing follows
	changes = "changes" // the places and the changed bits of the elements that have changed
	planes  = "planes"  // the changed bits of all elements
	whole   = "whole"   // all elements
)

// mostChanged is the largest share of elements, one in so many, whose places are listed.
const mostChanged = 8

// pack compresses a part; before is the part of the base, nil: there is none.
func pack(data, before []byte, width int) (form string, out []byte, err error) {
	coder, err := encoder()
	if err != nil {
		return "", nil, err
	}
	if before == nil {
		return whole, coder.EncodeAll(split(data, width), nil), nil
	}
	bits := make([]byte, len(data))
	subtle.XORBytes(bits, data, before)
	gaps, values, few := changed(bits, width)
	if !few {
		return planes, coder.EncodeAll(split(bits, width), nil), nil
	}
	places := coder.EncodeAll(gaps, nil)
	out = binary.AppendUvarint(nil, uint64(len(places)))
	return changes, coder.EncodeAll(split(values, width), append(out, places...)), nil
}

// unpack is the inverse of pack, for a part of a size.
func unpack(form string, packed, before []byte, width, size int) ([]byte, error) {
	coder, err := decoder()
	if err != nil {
		return nil, err
	}
	if form == changes {
		return change(coder, packed, before, width)
	}
	if err := promises(packed, size); err != nil {
		return nil, err
	}
	data, err := coder.DecodeAll(packed, make([]byte, 0, size))
	if err != nil {
		return nil, err
	}
	if len(data) != size {
		return nil, fmt.Errorf("it has %d bytes, expected %d", len(data), size)
	}
	data = join(data, width)
	if form == planes {
		subtle.XORBytes(data, data, before)
	}
	return data, nil
}

// promises is an error where the header of packed bytes names another size than expected: before memory is taken.
func promises(packed []byte, size int) error {
	var h zstd.Header
	if err := h.Decode(packed); err != nil && len(packed) > 0 {
		return err
	}
	if have := h.FrameContentSize; h.HasFCS && have != uint64(size) || !h.HasFCS && size > len(packed)<<10 {
		return fmt.Errorf("it has %d bytes, expected %d", have, size)
	}
	return nil
}

// changed lists the elements of which a bit is set: how many lie between each and the one before, and the elements.
// False: they are so many that a list does not pay.
func changed(bits []byte, width int) (gaps, values []byte, few bool) {
	count, most, next := 0, len(bits)/width/mostChanged, 0
	for at := 0; at+width <= len(bits); at += width {
		if at%8 == 0 && at+8 <= len(bits) && binary.LittleEndian.Uint64(bits[at:]) == 0 {
			at += 8 - width
			continue
		}
		element := bits[at : at+width]
		if zero(element) {
			continue
		}
		if count++; count > most {
			return nil, nil, false
		}
		gaps = binary.AppendUvarint(gaps, uint64(at/width-next))
		values = append(values, element...)
		next = at/width + 1
	}
	return gaps, values, len(bits)%width == 0
}

func zero(element []byte) bool {
	for _, b := range element {
		if b != 0 {
			return false
		}
	}
	return true
}

var errChanges = errors.New("the list of changed elements is damaged")

// change applies the changes of a part to the part of the base.
func change(coder *zstd.Decoder, packed, before []byte, width int) ([]byte, error) {
	length, n := binary.Uvarint(packed)
	if n <= 0 || length > uint64(len(packed)-n) {
		return nil, errChanges
	}
	// A gap takes fewer bytes than the elements that it skips, so that neither list is longer than the part.
	gaps, err := coder.DecodeAll(packed[n:n+int(length)], make([]byte, 0, len(before)+binary.MaxVarintLen64))
	if err != nil {
		return nil, err
	}
	values, err := coder.DecodeAll(packed[n+int(length):], make([]byte, 0, len(before)))
	if err != nil {
		return nil, err
	}
	values = join(values, width)
	out := append([]byte(nil), before...)
	for next := uint64(0); len(gaps) > 0; next++ {
		gap, n := binary.Uvarint(gaps)
		next += gap
		if n <= 0 || gap > uint64(len(out)) || len(values) < width || (next+1)*uint64(width) > uint64(len(out)) {
			return nil, errChanges
		}
		element := out[next*uint64(width):][:width]
		subtle.XORBytes(element, element, values[:width])
		gaps, values = gaps[n:], values[width:]
	}
	return out, nil
}

// split puts the first bytes of all elements beside each other, then the second bytes, and so on: what training
// changes
// least (signs, exponents, the upper bits of a mantissa) is then a long run of zeros.
func split(data []byte, width int) []byte {
	count := len(data) / width
	if width == 1 || count*width != len(data) {
		return data
	}
	out := make([]byte, len(data))
	for b := range width {
		plane := out[b*count : (b+1)*count]
		for i := range plane {
			plane[i] = data[i*width+b]
		}
	}
	return out
}

// join is the inverse of split.
func join(data []byte, width int) []byte {
	count := len(data) / width
	if width == 1 || count*width != len(data) {
		return data
	}
	out := make([]byte, len(data))
	for b := range width {
		for i, v := range data[b*count : (b+1)*count] {
			out[i*width+b] = v
		}
	}
	return out
}

// Both are made when they are first used and serve any number of goroutines.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(2*mostPart), zstd.WithDecodeAllCapLimit(true))
	})
)
