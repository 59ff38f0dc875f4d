package transcript

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Tokenizer turns token ids into text, as a tokenizer.json describes. It encodes nothing.
type Tokenizer struct {
	pieces   map[int]string // decoded
	prefixed bool           // pieces after the first of a word begin with ##
}

// Tokenizers reads each tokenizer once. The zero value is ready; it is safe for concurrent use.
type Tokenizers struct {
	mu    sync.Mutex
	known map[string]*Tokenizer // by the path of its file; nil: unreadable
}

// Of returns the tokenizer of the policy of the run in dir; nil when there is none on this machine.
func (c *Tokenizers) Of(dir state.Dir) *Tokenizer {
	rec, err := state.Read(dir)
	if err != nil {
		return nil
	}
	var paths []string
	for a, b := range rec.Blocks {
		var name string
		if a.Kind == kind.Inference && json.Unmarshal(b.Outputs["tokenizer"], &name) == nil && name != "" {
			paths = append(paths, name)
		}
	}
	sort.Strings(paths)
	for _, name := range paths {
		if t := c.load(tokenizerFile(name)); t != nil {
			return t
		}
	}
	return nil
}

// tokenizerFile is the path of a tokenizer.json, by a folder or by a name in the cache of Hugging Face; "" when it is
// not there.
func tokenizerFile(name string) string {
	found := []string{filepath.Join(name, "tokenizer.json")}
	if !filepath.IsAbs(name) {
		cache := os.Getenv("HF_HUB_CACHE")
		if home := os.Getenv("HF_HOME"); cache == "" && home != "" {
			cache = filepath.Join(home, "hub")
		}
		if home, err := os.UserHomeDir(); cache == "" && err == nil {
			cache = filepath.Join(home, ".cache", "huggingface", "hub")
		}
		pattern := filepath.Join(cache, "models--"+strings.ReplaceAll(name, "/", "--"), "snapshots", "*", "tokenizer.json")
		if list, err := filepath.Glob(pattern); err == nil {
			found = append(found, list...)
		}
	}
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

func (c *Tokenizers) load(path string) *Tokenizer {
	if path == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, known := c.known[path]
	if !known {
		if text, err := regular.FollowFile(path, maxTokenizer); err == nil {
			t, _ = parseTokenizer(text) // without it, ids are shown
		}
		if c.known == nil {
			c.known = map[string]*Tokenizer{}
		}
		c.known[path] = t
	}
	return t
}

// maxTokenizer bounds tokenizer.json, which has 35 MB for the largest vocabularies.
const maxTokenizer = 256 << 20

func parseTokenizer(text []byte) (*Tokenizer, error) {
	var f struct {
		Model struct {
			Type  string          `json:"type"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Decoder json.RawMessage `json:"decoder"`
		Pre     json.RawMessage `json:"pre_tokenizer"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("reading a tokenizer: %w", err)
	}
	vocabulary := map[string]int{}
	if err := json.Unmarshal(f.Model.Vocab, &vocabulary); err != nil {
		var list [][]any // Unigram: pairs of piece and score
		if err := json.Unmarshal(f.Model.Vocab, &list); err != nil {
			return nil, fmt.Errorf("reading the vocabulary of a tokenizer: %w", err)
		}
		for id, pair := range list {
			if len(pair) == 0 {
				continue
			}
			if piece, ok := pair[0].(string); ok {
				vocabulary[piece] = id
			}
		}
	}
	how := string(f.Decoder) + string(f.Pre)
	decode := func(piece string) string { return piece }
	switch {
	case strings.Contains(how, `"ByteLevel"`):
		bytes := byteAlphabet()
		decode = func(piece string) string { return fromAlphabet(piece, bytes) }
	case strings.Contains(how, "▁") || strings.Contains(how, `"Metaspace"`) || strings.Contains(how, `"ByteFallback"`):
		decode = fromSentencePiece
	}
	t := &Tokenizer{pieces: make(map[int]string, len(vocabulary)), prefixed: f.Model.Type == "WordPiece"}
	for piece, id := range vocabulary {
		t.pieces[id] = decode(piece)
	}
	for _, a := range f.Added {
		t.pieces[a.ID] = a.Content
	}
	return t, nil
}

// piece is the text of one token, which may be a part of a character.
func (t *Tokenizer) piece(id int) string {
	p, ok := t.pieces[id]
	switch {
	case !ok:
		return fmt.Sprintf("[%d]", id)
	case utf8.ValidString(p):
		return p
	}
	return fmt.Sprintf("⟨%x⟩", p)
}

func (t *Tokenizer) text(ids []int) string {
	var b strings.Builder
	for i, id := range ids {
		p, ok := t.pieces[id]
		if !ok {
			p = fmt.Sprintf("[%d]", id)
		}
		if t.prefixed {
			if rest, joined := strings.CutPrefix(p, "##"); joined {
				p = rest
			} else if i > 0 {
				p = " " + p
			}
		}
		b.WriteString(p)
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// byteAlphabet is the alphabet of GPT-2's byte-level tokens: printable characters stand for themselves, other bytes
// for
// characters from 256 on.
func byteAlphabet() map[rune]byte {
	out, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			out[rune(b)] = byte(b)
		} else {
			out[next] = byte(b)
			next++
		}
	}
	return out
}

func fromAlphabet(piece string, alphabet map[rune]byte) string {
	var b []byte
	for _, r := range piece {
		c, ok := alphabet[r]
		if !ok {
			return piece
		}
		b = append(b, c)
	}
	return string(b)
}

func fromSentencePiece(piece string) string {
	if len(piece) == 6 && strings.HasPrefix(piece, "<0x") && strings.HasSuffix(piece, ">") {
		if b, err := strconv.ParseUint(piece[3:5], 16, 8); err == nil {
			return string([]byte{byte(b)})
		}
	}
	return strings.ReplaceAll(piece, "▁", " ")
}
