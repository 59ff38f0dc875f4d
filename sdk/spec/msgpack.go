package spec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errCutOff = errors.New("malformed msgpack: it ends in the middle of a value")

// plausible refuses msgpack whose collections claim more elements than there are bytes left: the decoder makes room for
// what is claimed, and five bytes can claim four billion.
func plausible(data []byte) error {
	for i := 0; i < len(data); {
		header, body, elements, err := head(data[i:])
		if err != nil {
			return err
		}
		if rest := uint64(len(data) - i - header); body > rest || elements > rest {
			return fmt.Errorf("malformed msgpack: byte %d announces %d bytes and %d elements, %d bytes follow", i, body,
				elements, rest)
		}
		i += header + int(body)
	}
	return nil
}

// head is the size of a value's header, how many bytes of its own follow, and how many values: those come one after the
// other.
func head(data []byte) (header int, body, elements uint64, err error) {
	sized := func(width int) (uint64, error) {
		if len(data) < 1+width {
			return 0, errCutOff
		}
		var b [8]byte
		copy(b[8-width:], data[1:1+width])
		return binary.BigEndian.Uint64(b[:]), nil
	}
	var n uint64
	switch c := data[0]; {
	case c <= 0x7f || c >= 0xe0 || c >= 0xc0 && c <= 0xc3: // small numbers, nil, booleans
		return 1, 0, 0, nil
	case c <= 0x8f:
		return 1, 0, 2 * uint64(c&0x0f), nil
	case c <= 0x9f:
		return 1, 0, uint64(c & 0x0f), nil
	case c <= 0xbf:
		return 1, uint64(c & 0x1f), 0, nil
	case c <= 0xc6: // bytes
		n, err = sized(1 << (c - 0xc4))
		return 1 + 1<<(c-0xc4), n, 0, err
	case c <= 0xc9: // extensions, with a byte for their type
		n, err = sized(1 << (c - 0xc7))
		return 1 + 1<<(c-0xc7), n + 1, 0, err
	case c <= 0xcb: // floats
		return 1, 4 << (c - 0xca), 0, nil
	case c <= 0xcf:
		return 1, 1 << (c - 0xcc), 0, nil
	case c <= 0xd3:
		return 1, 1 << (c - 0xd0), 0, nil
	case c <= 0xd8: // extensions of fixed size
		return 1, 1 + 1<<(c-0xd4), 0, nil
	case c <= 0xdb: // strings
		n, err = sized(1 << (c - 0xd9))
		return 1 + 1<<(c-0xd9), n, 0, err
	case c <= 0xdd: // arrays
		n, err = sized(2 << (c - 0xdc))
		return 1 + 2<<(c-0xdc), 0, n, err
	default: // maps
		n, err = sized(2 << (c - 0xde))
		return 1 + 2<<(c-0xde), 0, 2 * n, err
	}
}
