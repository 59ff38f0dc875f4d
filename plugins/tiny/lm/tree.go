package lm

// tree lays the sequences of a batch over each other: a prefix that several sequences share is one
// row of the batch, computed once. The completions of one prompt, many of them equal, are the case
// that training with groups consists of; there it saves most of the work and changes no result.
//
// Rows are ordered so that a parent comes before its children. The zero value is ready.
type tree struct {
	tokens  []int32 // of each row
	parents []int32 // row of the token before, -1 at the beginning of a sequence
	child   []int32 // a row's first child, -1 for none
	sibling []int32 // the next child of the same parent, -1 for none
	paths   []int32 // the rows from the beginning up to each row, end to end
	starts  []int   // where a row's path begins in paths, and the end
	places  []int32 // the row of every token, sequences end to end
	firsts  []int   // where a sequence begins in places
}

// grow rebuilds the tree for a batch.
func (t *tree) grow(batch [][]int32) {
	t.tokens, t.parents, t.child, t.sibling = t.tokens[:0], t.parents[:0], t.child[:0], t.sibling[:0]
	t.paths, t.starts, t.places, t.firsts = t.paths[:0], append(t.starts[:0], 0), t.places[:0], t.firsts[:0]
	root := int32(-1)
	for _, s := range batch {
		t.firsts = append(t.firsts, len(t.places))
		at, first := int32(-1), &root
		for _, token := range s {
			at = t.descend(at, first, token)
			first = &t.child[at]
			t.places = append(t.places, at)
		}
	}
}

// descend finds the child of row parent (first is where its list of children begins) that holds
// token, or adds it.
func (t *tree) descend(parent int32, first *int32, token int32) int32 {
	for r := *first; r >= 0; r = t.sibling[r] {
		if t.tokens[r] == token {
			return r
		}
	}
	r, next := int32(len(t.tokens)), *first
	*first = r
	t.tokens, t.parents = append(t.tokens, token), append(t.parents, parent)
	t.sibling, t.child = append(t.sibling, next), append(t.child, -1)
	if parent >= 0 {
		t.paths = append(t.paths, t.path(int(parent))...)
	}
	t.paths = append(t.paths, r)
	t.starts = append(t.starts, len(t.paths))
	return r
}

func (t *tree) rows() int { return len(t.tokens) }

// path is the rows that row r attends to, itself last.
func (t *tree) path(r int) []int32 { return t.paths[t.starts[r]:t.starts[r+1]] }

func (t *tree) position(r int) int { return t.starts[r+1] - t.starts[r] - 1 }
