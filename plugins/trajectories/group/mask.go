package group

import (
	"bytes"
	"fmt"
)

// untrained is the value of a mask at a token that is not trained.
const untrained = "-100"

// badMask is a value of a mask that says neither that its token is trained nor that it is not.
type badMask struct {
	sequence, position int
	value, token       string
}

// checkMasks compares the texts of tokens and masks, lists of lists of integers of equal lengths: each value of a mask
// is -100 or the token's own id. Other conventions (0 and 1, labels shifted by one) would train other tokens than
// meant.
func checkMasks(tokens, masks []byte) *badMask {
	t, m := integers{text: tokens}, integers{text: masks}
	for {
		token, mask := t.next(), m.next()
		if token == nil || mask == nil {
			return nil
		}
		if !bytes.Equal(mask, token) && string(mask) != untrained {
			return &badMask{m.list - 2, m.position, string(mask), string(token)}
		}
	}
}

func (b *badMask) String() string {
	return fmt.Sprintf("Input should be -100 (not trained) or the token's own id, %s (trained), not %s. Masks of 0 and "+
		"1 and "+
		"shifted labels have another meaning", b.token, b.value)
}

// integers walks over the integers of a list of lists.
type integers struct {
	text     []byte
	at       int
	list     int // brackets that were opened
	position int // of the integer in its list
}

// next is the text of the next integer; nil: there are no more.
func (n *integers) next() []byte {
	for ; n.at < len(n.text); n.at++ {
		switch c := n.text[n.at]; {
		case c == '[':
			n.list, n.position = n.list+1, -1
		case c == '-' || c >= '0' && c <= '9':
			from := n.at
			for n.at++; n.at < len(n.text) && n.text[n.at] >= '0' && n.text[n.at] <= '9'; n.at++ {
			}
			n.position++
			return n.text[from:n.at]
		}
	}
	return nil
}
