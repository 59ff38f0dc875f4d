package lm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// The file: magic, format version and header length (uint32, little endian), JSON header, then the
// arrays the header announces as little-endian float32, then the SHA-256 of everything before it.
const (
	checkpointMagic   = "recipe-tiny\x00"
	checkpointVersion = 1
	checkpointPrefix  = len(checkpointMagic) + 8
	maxHeader         = 1 << 20
)

// ErrNotCheckpoint marks a file that is something else, rather than a damaged checkpoint.
var ErrNotCheckpoint = errors.New("not a checkpoint of the tiny model")

// Checkpoint is what one file holds: a model, the alphabet it reads, and what a trainer needs to go
// on from there.
type Checkpoint struct {
	Params   *Params
	Alphabet string
	// Step counts optimizer steps since the model that training began with.
	Step int
	// Adam is the optimizer's state, nil for a file that is only to be served.
	Adam *Adam
	// Notes say where the weights come from, for people: task, data, seed.
	Notes map[string]string
}

type checkpointHeader struct {
	Config     Config            `json:"config"`
	Alphabet   string            `json:"alphabet"`
	Step       int               `json:"step"`
	Notes      map[string]string `json:"notes,omitempty"`
	Parameters int               `json:"parameters"`
	Adam       *adamHeader       `json:"adam,omitempty"`
}

type adamHeader struct {
	Beta1, Beta2, Epsilon, WeightDecay float64
	Steps                              int
}

// Tokenizer is the tokenizer of the checkpoint's alphabet.
func (c *Checkpoint) Tokenizer() (*Tokenizer, error) {
	t, err := NewTokenizer(c.Alphabet)
	if err == nil && c.Params.Config.Bytes > 0 {
		t = t.WithBytes()
	}
	return t, err
}

// Widen makes a model read any text, up to so many tokens: bytes get fresh weights, and positions behind its own are
// sines. What it writes, and what it makes of what it could read before, stays. A model that reads bytes stays, too.
func (c *Checkpoint) Widen(context int) {
	old := c.Params.Config
	if old.Bytes > 0 || context <= old.Context {
		return
	}
	wide := old
	wide.Context, wide.Positions, wide.Bytes = context, old.Context, allBytes
	fresh := make([]float32, allBytes*old.Width)
	rng := rand.New(rand.NewPCG(uint64(old.Width), 0xb17e5))
	for i := range fresh {
		fresh[i] = float32(rng.NormFloat64() * embedding)
	}
	c.Params = view(wide, slices.Concat(c.Params.flat, fresh))
	if a := c.Adam; a != nil {
		rest := make([]float32, len(fresh))
		a.Mean, a.Square = slices.Concat(a.Mean, rest), slices.Concat(a.Square, rest)
	}
}

// Encode is the content of the checkpoint's file.
func (c *Checkpoint) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("encoding checkpoint: %w", err)
	}
	h := checkpointHeader{Config: c.Params.Config, Alphabet: c.Alphabet, Step: c.Step, Notes: c.Notes,
		Parameters: len(c.Params.flat)}
	arrays := [][]float32{c.Params.flat}
	if a := c.Adam; a != nil {
		h.Adam = &adamHeader{a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay, a.Steps}
		arrays = append(arrays, a.Mean, a.Square)
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding checkpoint header: %w", err)
	}
	out := make([]byte, 0, checkpointPrefix+len(header)+4*len(arrays)*len(c.Params.flat)+sha256.Size)
	out = append(out, checkpointMagic...)
	out = binary.LittleEndian.AppendUint32(out, checkpointVersion)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(header)))
	out = append(out, header...)
	for _, a := range arrays {
		for _, v := range a {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...), nil
}

// check refuses parts that do not belong together.
func (c *Checkpoint) check() error {
	t, err := c.Tokenizer()
	if err != nil {
		return err
	}
	if v := c.Params.Config.Inputs(); t.Size() != v {
		return fmt.Errorf("alphabet makes %d tokens, the model reads %d", t.Size(), v)
	}
	if c.Step < 0 {
		return fmt.Errorf("step: want 0 or more, got %d", c.Step)
	}
	if !c.Params.Finite() {
		return errors.New("weights contain NaN or infinity: training diverged; go back to an earlier checkpoint and " +
			"lower the learning rate")
	}
	if a := c.Adam; a != nil && (len(a.Mean) != len(c.Params.flat) || len(a.Square) != len(c.Params.flat)) {
		return fmt.Errorf("optimizer state: want %d numbers a moment, got %d and %d", len(c.Params.flat), len(a.Mean),
			len(a.Square))
	}
	return nil
}

// Decode reads the content of a checkpoint file. A file that is not one gives ErrNotCheckpoint; a
// truncated, altered or newer one an error that says which.
func Decode(data []byte) (*Checkpoint, error) {
	if len(data) < len(checkpointMagic) || string(data[:len(checkpointMagic)]) != checkpointMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrNotCheckpoint,
			checkpointMagic[:len(checkpointMagic)-1])
	}
	if len(data) < checkpointPrefix+sha256.Size {
		return nil, fmt.Errorf("checkpoint is truncated: %d bytes are too few for its header", len(data))
	}
	numbers := data[len(checkpointMagic):]
	if v := binary.LittleEndian.Uint32(numbers); v != checkpointVersion {
		return nil, fmt.Errorf("checkpoint format: this program reads version %d, the file has version %d; use the program "+
			"version that wrote it", checkpointVersion, v)
	}
	length := binary.LittleEndian.Uint32(numbers[4:])
	if length > maxHeader || checkpointPrefix+int(length)+sha256.Size > len(data) {
		return nil, fmt.Errorf("checkpoint is truncated or damaged: header of %d bytes in a file of %d", length,
			len(data))
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	var h checkpointHeader
	if err := json.Unmarshal(body[checkpointPrefix:checkpointPrefix+int(length)], &h); err != nil {
		return nil, fmt.Errorf("checkpoint header is damaged: %w", err)
	}
	if err := h.checkSize(len(body) - checkpointPrefix - int(length)); err != nil {
		return nil, err
	}
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, errors.New("checkpoint is damaged: its checksum does not match; copy it again or " +
			"go back to an earlier one")
	}
	return h.assemble(body[checkpointPrefix+int(length):])
}

func (h *checkpointHeader) checkSize(payload int) error {
	if err := h.Config.Validate(); err != nil {
		return fmt.Errorf("checkpoint header is damaged: %w", err)
	}
	if n := h.Config.Parameters(); h.Parameters != n {
		return fmt.Errorf("checkpoint header is damaged: %d weights announced, its model shape has %d", h.Parameters, n)
	}
	arrays := 1
	if h.Adam != nil {
		arrays = 3
	}
	if want := 4 * arrays * h.Parameters; payload != want {
		return fmt.Errorf("checkpoint is truncated or damaged: want %d bytes of weights, got %d", want, payload)
	}
	return nil
}

func (h *checkpointHeader) assemble(payload []byte) (*Checkpoint, error) {
	take := func() []float32 {
		out := make([]float32, h.Parameters)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(payload[4*i:]))
		}
		payload = payload[4*h.Parameters:]
		return out
	}
	c := &Checkpoint{Params: view(h.Config, take()), Alphabet: h.Alphabet, Step: h.Step, Notes: h.Notes}
	if a := h.Adam; a != nil {
		c.Adam = &Adam{AdamConfig: AdamConfig{a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay}, Mean: take(), Square: take(),
			Steps: a.Steps}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("checkpoint is damaged: %w", err)
	}
	return c, nil
}

// Fingerprint names the weights: two models with the same fingerprint give the same answers.
func (p *Params) Fingerprint() string {
	hash, buffer := sha256.New(), make([]byte, 0, 4*len(p.flat))
	for _, v := range p.flat {
		buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(v))
	}
	_, _ = hash.Write(buffer) // a hash never fails to write
	return hex.EncodeToString(hash.Sum(nil))
}
