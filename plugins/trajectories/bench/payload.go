package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
)

// shape is the form of the groups of a measurement.
type shape struct{ sequences, tokens int }

func (s shape) String() string { return fmt.Sprintf("%d × %d", s.sequences, s.tokens) }

// payloads are ready-made bodies, plain and compressed as atroposlib's environments send them.
type payloads struct {
	plain, zipped [][]byte
	size          int
}

var made sync.Map // shape → *payloads

// bodies makes a few different groups as Python's json writes them: token ids of a vocabulary of 150,000, masks with a
// prompt of a quarter, and log-probabilities with a double's digits.
func bodies(s shape, env int) *payloads {
	if p, ok := made.Load(s); ok {
		return p.(*payloads)
	}
	rng := rand.New(rand.NewPCG(7, uint64(s.tokens)))
	p := &payloads{}
	for range 16 {
		body := oneGroup(rng, s, env)
		var z bytes.Buffer
		w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
		_, _ = w.Write(body)
		_ = w.Close()
		p.plain, p.zipped = append(p.plain, body), append(p.zipped, z.Bytes())
		p.size += len(body) / 16
	}
	made.Store(s, p)
	return p
}

func oneGroup(rng *rand.Rand, s shape, env int) []byte {
	var tokens, masks, logprobs, scores bytes.Buffer
	for i := range s.sequences {
		if i > 0 {
			for _, b := range []*bytes.Buffer{&tokens, &masks, &logprobs, &scores} {
				b.WriteString(", ")
			}
		}
		scores.WriteString(strconv.FormatFloat(rng.Float64(), 'g', -1, 64))
		for _, b := range []*bytes.Buffer{&tokens, &masks, &logprobs} {
			b.WriteByte('[')
		}
		for j := range s.tokens {
			if j > 0 {
				for _, b := range []*bytes.Buffer{&tokens, &masks, &logprobs} {
					b.WriteString(", ")
				}
			}
			id := strconv.Itoa(rng.IntN(150_000))
			tokens.WriteString(id)
			if j < s.tokens/4 {
				masks.WriteString("-100")
				logprobs.WriteString("1.0")
			} else {
				masks.WriteString(id)
				logprobs.WriteString(strconv.FormatFloat(-rng.ExpFloat64(), 'g', 15, 32))
			}
		}
		for _, b := range []*bytes.Buffer{&tokens, &masks, &logprobs} {
			b.WriteByte(']')
		}
	}
	return []byte(`{"tokens": [` + tokens.String() + `], "masks": [` + masks.String() + `], "scores": [` +
		scores.String() +
		`], "inference_logprobs": [` + logprobs.String() +
		`], "advantages": null, "ref_logprobs": null, "messages": null, "generation_params": null, "overrides": null, "group_overrides": null, "images": null, "distill_token_ids": null, "distill_logprobs": null, "env_id": ` + strconv.Itoa(env) + `}`)
}
