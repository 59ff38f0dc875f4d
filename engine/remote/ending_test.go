package remote

import (
	"bytes"
	"testing"
)

func TestTheEndOfALogIsKept(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 1000, endingBytes, 5 * endingBytes} {
		var e ending
		var all []byte
		for i := 0; len(all) < 5*endingBytes; i++ {
			part := bytes.Repeat([]byte{byte('a' + i%26)}, size)
			all = append(all, part...)
			if n, err := e.Write(part); n != size || err != nil {
				t.Fatal(n, err)
			}
			if len(e) > 3*endingBytes {
				t.Fatalf("it keeps %d bytes", len(e))
			}
		}
		if !bytes.Equal(e.end(), all[len(all)-endingBytes:]) {
			t.Errorf("parts of %d: the end is another", size)
		}
	}
}
