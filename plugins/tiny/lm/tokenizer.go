package lm

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The ids of the special tokens, the same in every vocabulary; characters follow from FirstCharacter.
const (
	Padding        int32 = iota // fills rectangles in other people's formats; never trained on
	Beginning                   // stands for an empty prompt
	End                         // the model writes it when an answer is complete
	FirstCharacter              // the id of the alphabet's first character
)

// ASCII is the default alphabet: newline and the printable characters.
const ASCII = "\n !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

// Tokenizer maps each character of an alphabet to one token and, WithBytes, each byte of other characters to one.
type Tokenizer struct {
	alphabet []rune
	ids      map[rune]int32
	bytes    bool
}

// WithBytes is the tokenizer with 256 more ids, one for each byte, so that it reads any text.
func (t *Tokenizer) WithBytes() *Tokenizer { return &Tokenizer{t.alphabet, t.ids, true} }

// characters is the number of ids without those of bytes.
func (t *Tokenizer) characters() int { return len(t.alphabet) + int(FirstCharacter) }

// byteOf is the byte that an id stands for.
func (t *Tokenizer) byteOf(id int32) (b byte, ok bool) {
	i := int(id) - t.characters()
	return byte(i), t.bytes && i >= 0 && i < allBytes //nolint:gosec // checked beside it
}

// NewTokenizer gives the characters of alphabet consecutive ids, in order. Each may occur once.
func NewTokenizer(alphabet string) (*Tokenizer, error) {
	if alphabet == "" || !utf8.ValidString(alphabet) {
		return nil, fmt.Errorf("tokenizer alphabet: want valid, non-empty UTF-8, got %q", alphabet)
	}
	t := &Tokenizer{alphabet: []rune(alphabet), ids: make(map[rune]int32)}
	if n := len(t.alphabet) + int(FirstCharacter); n > maxVocabulary {
		return nil, fmt.Errorf("tokenizer alphabet: want at most %d tokens, got %d", maxVocabulary, n)
	}
	for i, r := range t.alphabet {
		if _, double := t.ids[r]; double {
			return nil, fmt.Errorf("tokenizer alphabet: character %q occurs twice", r)
		}
		t.ids[r] = FirstCharacter + int32(i)
	}
	return t, nil
}

// Size is the number of token ids, special tokens included.
func (t *Tokenizer) Size() int {
	if t.bytes {
		return t.characters() + allBytes
	}
	return t.characters()
}

// Alphabet is what NewTokenizer was given.
func (t *Tokenizer) Alphabet() string { return string(t.alphabet) }

// Encode turns text into tokens, one a character, and adds no special token. A character outside
// the alphabet is one token a byte, or without bytes an error that names it and its place.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	tokens := make([]int32, 0, len(text))
	for at, r := range text {
		id, known := t.ids[r]
		if !known && t.bytes {
			_, size := utf8.DecodeRuneInString(text[at:])
			for _, b := range []byte(text[at : at+size]) {
				tokens = append(tokens, int32(t.characters())+int32(b)) //nolint:gosec // a small number
			}
			continue
		}
		if !known {
			return nil, fmt.Errorf("character %q at byte %d is not in the model's alphabet %q", r, at, string(t.alphabet))
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

// Decode turns tokens into text; special tokens and unknown ids yield nothing. A part of a text may begin or end within
// a character.
func (t *Tokenizer) Decode(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		if i := id - FirstCharacter; i >= 0 && int(i) < len(t.alphabet) {
			b.WriteRune(t.alphabet[i])
		} else if one, ok := t.byteOf(id); ok {
			b.WriteByte(one)
		}
	}
	return b.String()
}

// Name is how one token is shown to people: its character, or <0xE2> for a byte, or <pad>,
// <bos>, <eos>, <id> for others.
func (t *Tokenizer) Name(id int32) string {
	switch id {
	case Padding:
		return "<pad>"
	case Beginning:
		return "<bos>"
	case End:
		return "<eos>"
	}
	if b, ok := t.byteOf(id); ok {
		return fmt.Sprintf("<0x%02X>", b)
	}
	if s := t.Decode([]int32{id}); s != "" {
		return s
	}
	return fmt.Sprintf("<%d>", id)
}
