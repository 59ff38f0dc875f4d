package trajectories

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// A client that gets no answer to its post sends it again. Our clients give each post an Idempotency-Key: the key is
// stored together with the groups, so that a repeated post is recognized even after the server was killed. Stock
// clients send none. For them there is unanswered, which is safe but covers fewer cases.

// keyHeader names a post for as long as its sender may repeat it.
const keyHeader = "Idempotency-Key"

// repeatedHeader marks the answer to a post that had been stored before.
const repeatedHeader = "Idempotency-Replayed"

const maxKey = 255 // characters

// postKey is what is kept of a key; the zero value stands for none.
type postKey [16]byte

// keyOf reads a request's key.
func keyOf(r *http.Request) (k postKey, err error) {
	given := r.Header.Get(keyHeader)
	if len(given) > maxKey {
		return k, &group.Invalid{
			Details: []group.Detail{{Type: "string_too_long", Loc: []any{"header", keyHeader}, Input: given[:32] + " …",
				Msg: fmt.Sprintf(
					"String should have at most %d characters",
					maxKey,
				), Ctx: map[string]any{"max_length": maxKey}}},
		}
	}
	if given != "" {
		sum := sha256.Sum256([]byte(given))
		copy(k[:], sum[:])
	}
	return k, nil
}

// idempotency holds what is known about posts that may be repeated. The state's lock guards it.
type idempotency struct {
	stored     map[postKey]store.Key
	order      []postKey                 // the oldest first, at most 2·KeepKeys
	under      map[postKey]chan struct{} // posts under way; closed when they are over
	unanswered map[[sha256.Size]byte]*unanswered
}

func newIdempotency(keys []store.Key) idempotency {
	r := idempotency{
		stored:     map[postKey]store.Key{},
		under:      map[postKey]chan struct{}{},
		unanswered: map[[sha256.Size]byte]*unanswered{},
	}
	for _, k := range keys {
		r.add(k)
	}
	return r
}

// add records a stored post and deletes the one that is too old.
func (r *idempotency) add(k store.Key) {
	id := postKey(k.Name)
	r.stored[id] = k
	r.order = append(r.order, id)
	if over := len(r.order) - store.KeepKeys; over > 0 {
		delete(r.stored, r.order[over-1])
		if over == store.KeepKeys {
			r.order = append([]postKey(nil), r.order[over:]...)
		}
	}
}

// stored reports whether a post of this key has been stored: such a post needs no room.
func (b *state) stored(k postKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.keys.stored[k]
	return ok
}

// begin claims a key for a post. When the post has been stored before, it returns how many groups it held; when the
// same post is under way on another connection, it waits for the outcome of that one. Otherwise end must follow.
func (b *state) begin(ctx context.Context, k postKey, sum uint32) (before *store.Key, end func(), err error) {
	for {
		b.mu.Lock()
		if known, ok := b.keys.stored[k]; ok {
			b.mu.Unlock()
			if known.Sum != sum {
				return nil, nil, &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"header", keyHeader},
					Msg: "Another post was stored under this key: use a new one for each post, and the same only to repeat it"}}}
			}
			return &known, nil, nil
		}
		other, busy := b.keys.under[k]
		if !busy {
			over := make(chan struct{})
			b.keys.under[k] = over
			b.mu.Unlock()
			return nil, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.keys.under, k)
				close(over)
			}, nil
		}
		b.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf(
				"waiting for the outcome of the same post on another connection: %w",
				context.Cause(ctx),
			)
		}
	}
}

// unanswered is a post without a key that was stored although its client had gone before it could be answered: a
// stock client will send it again. The next post of exactly the same groups counts as the repetition and is not
// stored twice.
//
// This cannot lose an acknowledged group, even if two posts are equal by chance: the first was never acknowledged,
// because its connection is broken off instead of answered, and each is paired with one later post at most. So as many
// copies are stored as were acknowledged, or more. It does not detect an answer that was lost on the network, or a
// server that was killed before it answered: then a stock client's retry is stored twice.
type unanswered struct {
	times int
	until time.Time
}

const (
	unansweredFor  = time.Minute // atroposlib sends again within 10 s
	unansweredMost = 1024
)

func digest(groups []*group.Group) [sha256.Size]byte {
	h := sha256.New()
	for _, g := range groups {
		h.Write(g.JSON)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// noteUnanswered records a stored post whose answer could not be sent.
func (b *state) noteUnanswered(d [sha256.Size]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for k, u := range b.keys.unanswered {
		if now.After(u.until) {
			delete(b.keys.unanswered, k)
		}
	}
	if u := b.keys.unanswered[d]; u != nil {
		u.times, u.until = u.times+1, now.Add(unansweredFor)
	} else if len(b.keys.unanswered) < unansweredMost {
		b.keys.unanswered[d] = &unanswered{1, now.Add(unansweredFor)}
	}
}

// settleUnanswered reports whether groups came in an unanswered post, which is then settled.
func (b *state) settleUnanswered(groups []*group.Group) bool {
	b.mu.Lock()
	none := len(b.keys.unanswered) == 0
	b.mu.Unlock()
	if none { // nearly always: then the groups need not be summed up
		return false
	}
	d := digest(groups)
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.keys.unanswered[d]
	if u == nil || b.now().After(u.until) {
		return false
	}
	if u.times--; u.times == 0 {
		delete(b.keys.unanswered, d)
	}
	b.counts.repeated++
	return true
}

func sumOf(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
