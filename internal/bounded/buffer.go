package bounded

import "bytes"

// Buffer keeps what a program prints, up to Limit bytes. What would be more is an error, at which package exec stops
// reading, so that the program gets a signal when it prints on.
type Buffer struct {
	Limit int64

	kept bytes.Buffer // not embedded: io.Copy would take its ReadFrom
	over bool
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	if int64(b.kept.Len()+len(p)) > b.Limit {
		b.over = true
		return 0, tooLarge(b.Limit)
	}
	return b.kept.Write(p)
}

// Err is the error of a program that has printed more.
func (b *Buffer) Err() error {
	if b.over {
		return tooLarge(b.Limit)
	}
	return nil
}

// Bytes are what was kept.
func (b *Buffer) Bytes() []byte { return b.kept.Bytes() }

// String is what was kept.
func (b *Buffer) String() string { return b.kept.String() }
