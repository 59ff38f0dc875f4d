package trajectory

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/klauspost/compress/zstd"
)

func compressZstd(body []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readBody reads a reply. net/http decompresses only what it asked for itself.
func readBody(r *http.Response) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "zstd" {
		return io.ReadAll(r.Body)
	}
	z, err := zstd.NewReader(r.Body, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("decompressing the reply: %w", err)
	}
	defer z.Close()
	body, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("decompressing the reply: %w", err)
	}
	return body, nil
}
