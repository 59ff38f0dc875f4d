// Package zstd is an encoding for clients of package trajectory on other machines than the trajectory API.
package zstd

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Encoding compresses bodies with zstd. Only recipe's server understands it, for which it is a quarter of the work that
// gzip is.
func Encoding() trajectory.Encoding {
	return trajectory.Encoding{Name: "zstd", Compress: compress, Decompress: decompress}
}

func compress(body []byte) ([]byte, error) {
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

func decompress(r io.Reader) ([]byte, error) { return inflate(r, trajectory.MostAnswer) }

func inflate(r io.Reader, most int64) ([]byte, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("decompressing the reply: %w", err)
	}
	defer z.Close()
	body, err := bounded.ReadAll(z, most)
	if err != nil {
		return nil, fmt.Errorf("decompressing the reply: %w", err)
	}
	return body, nil
}
