package server

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// job is a request under way. Only the loop touches it until done is closed.
type job struct {
	ctx       context.Context
	request   Request
	sequences []*sequence
	results   []Completion
	left      int
	done      chan struct{}
}

// sequence is one completion under way.
type sequence struct {
	job     *job
	index   int
	rng     *rand.Rand
	cache   *lm.Cache
	sampled []int32
	text    string
	// branch is the same for two sequences of a request exactly if they have drawn the same tokens so far.
	branch branch
}

// branch names a node in the tree of all that has been drawn; the zero branch has drawn nothing.
type branch int64

// pending is what the model has not read yet.
func (s *sequence) pending() []int32 {
	read, prompt := s.cache.Len(), s.job.request.Prompt
	if read >= len(prompt) {
		return s.sampled[read-len(prompt):]
	}
	return append(slices.Clone(prompt[read:]), s.sampled...)
}

// loop is the state of the goroutine that decodes.
type loop struct {
	engine   *Engine
	policy   *Policy
	waiting  []*sequence
	active   []*sequence
	caches   []*lm.Cache // free
	decoders []lm.Decoder
	branches branch // given out so far
}

func newLoop(e *Engine) *loop {
	return &loop{engine: e, policy: e.policy.Load(), decoders: make([]lm.Decoder, e.options.Shards)}
}

func (l *loop) run() {
	defer close(l.engine.stopped)
	for l.receive() {
		l.admit()
		if len(l.active) > 0 {
			l.step()
		}
	}
}

// receive takes what has arrived, waiting if there is nothing else to do; false when closed.
func (l *loop) receive() bool {
	if len(l.active)+len(l.waiting) == 0 {
		select {
		case j := <-l.engine.jobs:
			l.waiting = append(l.waiting, j.sequences...)
		case <-l.engine.quit:
			return false
		}
	}
	for {
		select {
		case j := <-l.engine.jobs:
			l.waiting = append(l.waiting, j.sequences...)
		case <-l.engine.quit:
			return false
		default:
			return true
		}
	}
}

// admit drops abandoned requests and fills the batch, first come first served.
func (l *loop) admit() {
	l.active = slices.DeleteFunc(l.active, l.canceled)
	l.waiting = slices.DeleteFunc(l.waiting, l.canceled)
	for len(l.active) < l.engine.options.MaxBatch && len(l.waiting) > 0 {
		s := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		if n := len(l.caches); n > 0 {
			s.cache, l.caches = l.caches[n-1], l.caches[:n-1]
			s.cache.Reset()
		} else {
			s.cache = lm.NewCache(l.engine.config)
		}
		l.active = append(l.active, s)
	}
	l.engine.active.Store(int64(len(l.active)))
}

func (l *loop) canceled(s *sequence) bool {
	if s.job.ctx.Err() == nil {
		return false
	}
	l.release(s)
	return true
}

func (l *loop) release(s *sequence) {
	l.engine.held.Add(-1)
	if s.cache != nil {
		l.caches = append(l.caches, s.cache)
		s.cache = nil
	}
}

// step draws one token of every active sequence.
func (l *loop) step() {
	if p := l.engine.policy.Load(); p != l.policy {
		l.policy = p
		for _, s := range l.active {
			s.cache.Reset()
		}
	}
	readers, reader := l.readers()
	logits := l.extend(readers)
	// All copies are made before any sequence ends and gives its cache back.
	for i, s := range l.active {
		if from := readers[reader[i]]; from != s {
			s.cache.CopyFrom(l.engine.config, from.cache)
		}
	}
	kept, grown := 0, map[growth]branch{}
	for i, s := range l.active {
		if l.draw(s, logits[reader[i]]) {
			s.branch = l.grow(grown, growth{reader[i], s.sampled[len(s.sampled)-1]})
			l.active[kept] = s
			kept++
		}
	}
	clear(l.active[kept:])
	l.active = l.active[:kept]
	l.engine.active.Store(int64(kept))
}

// growth is a reader and the token drawn from its logits: sequences that share both stay equal.
type growth struct {
	reader int
	token  int32
}

func (l *loop) grow(grown map[growth]branch, g growth) branch {
	b, seen := grown[g]
	if !seen {
		l.branches++
		b = l.branches
		grown[g] = b
	}
	return b
}

// readers chooses which sequences go through the model, and whose logits each active one uses: of those of a request
// that are equal so far, and have been read equally far, only the first goes. Completions of one prompt are equal at
// their beginning, and those of a policy that is sure of itself to their end.
func (l *loop) readers() (readers []*sequence, reader []int) {
	type equal struct {
		job    *job
		branch branch
		read   int
	}
	first := map[equal]int{}
	for _, s := range l.active {
		key := equal{s.job, s.branch, s.cache.Len()}
		at, seen := first[key]
		if !seen {
			at = len(readers)
			first[key] = at
			readers = append(readers, s)
			if key.read == 0 {
				l.engine.promptTokens.Add(int64(len(s.job.request.Prompt)))
			}
		}
		reader = append(reader, at)
	}
	return readers, reader
}

// smallShard is the number of sequences below which another goroutine costs more than it saves.
const smallShard = 8

// extend feeds every reader's pending tokens to the model and returns the logits after the last.
func (l *loop) extend(readers []*sequence) [][]float32 {
	shards := max(1, min(len(l.decoders), len(readers)/smallShard))
	out := make([][]float32, len(readers))
	work := func(shard int) {
		part := readers[len(readers)*shard/shards : len(readers)*(shard+1)/shards]
		caches, tokens := make([]*lm.Cache, len(part)), make([][]int32, len(part))
		for i, s := range part {
			caches[i], tokens[i] = s.cache, s.pending()
		}
		logits, v := l.decoders[shard].Extend(l.policy.Params, caches, tokens), l.engine.config.Vocabulary
		for i := range part {
			out[len(readers)*shard/shards+i] = logits[i*v : (i+1)*v]
		}
	}
	var group sync.WaitGroup
	for shard := 1; shard < shards; shard++ {
		group.Go(func() { work(shard) })
	}
	work(0)
	group.Wait()
	return out
}

// draw adds one token and reports whether the sequence continues.
func (l *loop) draw(s *sequence, logits []float32) bool {
	r, result := &s.job.request, &s.job.results[s.index]
	id, logProb := r.Sampling.Pick(logits, s.rng)
	t := Token{ID: id, LogProb: logProb, Alternatives: alternatives(logits, r.Alternatives)}
	if len(s.sampled) == 0 {
		result.First = l.policy.Version
	}
	result.Last = l.policy.Version
	result.Tokens = append(result.Tokens, t)
	s.sampled = append(s.sampled, id)
	s.text += l.engine.tokenizer.Decode(s.sampled[len(s.sampled)-1:])
	l.engine.sampled.Add(1)
	s.finish(result)
	if r.Emit != nil {
		text := result.Text
		if result.Finish == "" {
			text = text[:certain(text, r.Stop)]
		}
		r.Emit(Progress{s.index, t, text, result.Finish, result.Stop, l.policy.Version})
	}
	if result.Finish == "" {
		return true
	}
	l.release(s)
	l.engine.completed.Add(1)
	if s.job.left--; s.job.left == 0 {
		close(s.job.done)
	}
	return false
}

// finish decides whether the last token ended the completion.
func (s *sequence) finish(result *Completion) {
	r := &s.job.request
	result.Text = s.text
	if stop, at := findStop(s.text, r.Stop); stop != "" {
		result.Text, result.Stop, result.Finish = s.text[:at], stop, FinishStop
		return
	}
	switch {
	case s.sampled[len(s.sampled)-1] == lm.End:
		result.Finish = FinishStop
	case len(s.sampled) >= r.MaxTokens:
		result.Finish = FinishLength
	}
}

// findStop returns the stop text that occurs first, and where.
func findStop(text string, stops []string) (stop string, at int) {
	at = len(text)
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && i < at {
			stop, at = s, i
		}
	}
	return stop, at
}

// certain is the length of text without an end that a stop text may be beginning with.
func certain(text string, stops []string) int {
	n := len(text)
	for _, s := range stops {
		for k := min(len(s)-1, len(text)); k > 0; k-- {
			if strings.HasSuffix(text, s[:k]) {
				n = min(n, len(text)-k)
				break
			}
		}
	}
	return n
}

// alternatives lists the n most likely tokens, most likely first.
func alternatives(logits []float32, n int) []Alternative {
	if n <= 0 {
		return nil
	}
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	lse, out := lm.LogSumExp(logits), make([]Alternative, min(n, len(order)))
	for i := range out {
		out[i] = Alternative{order[i], float64(logits[order[i]]) - lse}
	}
	return out
}
