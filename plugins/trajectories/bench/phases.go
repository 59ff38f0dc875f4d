package main

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is one measurement of one server.
type result struct {
	count   float64 // of what the phase counts: posts, sequences, requests
	cpu     time.Duration
	wall    time.Duration
	latency []time.Duration
}

func (r result) perCPU() float64  { return r.count / max(r.cpu.Seconds(), 0.01) }
func (r result) perWall() float64 { return r.count / max(r.wall.Seconds(), 1e-3) }

func (r result) quantile(q float64) time.Duration {
	if len(r.latency) == 0 {
		return 0
	}
	slices.Sort(r.latency)
	return r.latency[min(len(r.latency)-1, int(q*float64(len(r.latency))))]
}

// measure runs work and takes the server's processor time around it.
func (s *server) measure(work func() (count float64, latency []time.Duration, err error)) (result, error) {
	cpu, begin := s.cpu(), time.Now()
	count, latency, err := work()
	return result{count: count, cpu: s.cpu() - cpu, wall: time.Since(begin), latency: latency}, err
}

// parallel calls f n times from several goroutines and collects how long each took.
func parallel(workers, n int, f func(i int) error) ([]time.Duration, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	all := make([][]time.Duration, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					return
				}
				begin := time.Now()
				if err := f(i); err != nil {
					failed.Store(&err)
					return
				}
				all[w] = append(all[w], time.Since(begin))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return slices.Concat(all...), nil
}

func (s *server) post(p *payloads, i int, zipped bool) error {
	body, headers := p.plain[i%len(p.plain)], []string(nil)
	if zipped {
		body, headers = p.zipped[i%len(p.zipped)], []string{"Content-Encoding", "gzip"}
	}
	code, text, err := s.call(http.MethodPost, "/scored_data", body, headers...)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answered a post with %d %s", s.name, code, text)
	}
	return err
}

// posts measures intake.
func (s *server) posts(sh shape, n int, zipped bool) (result, error) {
	if err := s.prepare(256, sh.sequences, 1); err != nil {
		return result{}, err
	}
	p := bodies(sh, 0)
	return s.measure(func() (float64, []time.Duration, error) {
		latency, err := parallel(4, n, func(i int) error { return s.post(p, i, zipped) })
		return float64(n), latency, err
	})
}

// drain measures delivery: the queue is filled first, then a trainer takes batch after batch.
func (s *server) drain(sh shape, batchSize, batches int, headers ...string) (result, error) {
	if err := s.prepare(batchSize, sh.sequences, 1); err != nil {
		return result{}, err
	}
	p := bodies(sh, 0)
	if _, err := parallel(4, batches*batchSize/sh.sequences,
		func(i int) error { return s.post(p, i, false) }); err != nil {
		return result{}, err
	}
	return s.measure(func() (float64, []time.Duration, error) {
		var latency []time.Duration
		for range batches {
			begin := time.Now()
			_, text, err := s.call(http.MethodGet, "/batch", nil, headers...)
			if err != nil {
				return 0, nil, err
			}
			if len(text) < 1000 {
				return 0, nil, fmt.Errorf("%s had no batch: %s", s.name, text)
			}
			latency = append(latency, time.Since(begin))
		}
		return float64(batches * batchSize), latency, nil
	})
}

// mixed measures a whole run: environments post and ask for the status, a trainer polls and takes batches.
type mixed struct {
	posts, status, batches result
}

func (s *server) mixed(sh shape, environments, batchSize int, pause, length time.Duration) (m mixed, err error) {
	if err := s.prepare(batchSize, sh.sequences, environments); err != nil {
		return m, err
	}
	p := bodies(sh, 0)
	end := time.Now().Add(length)
	var mu sync.Mutex
	var wg sync.WaitGroup
	note := func(r *result, n float64, d time.Duration, e error) {
		mu.Lock()
		defer mu.Unlock()
		if e != nil {
			err = e
			return
		}
		r.count += n
		r.latency = append(r.latency, d)
	}
	cpu, begin := s.cpu(), time.Now()
	for env := range environments {
		wg.Go(func() {
			time.Sleep(pause * time.Duration(env) / time.Duration(environments))
			for i := env; time.Now().Before(end); i++ {
				at := time.Now()
				e := s.post(p, i, false)
				note(&m.posts, 1, time.Since(at), e)
				at = time.Now()
				_, _, e = s.call(http.MethodGet, "/status-env", fmt.Appendf(nil, `{"env_id":%d}`, env))
				note(&m.status, 1, time.Since(at), e)
				if e != nil {
					return
				}
				time.Sleep(pause)
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(end) {
			at := time.Now()
			_, text, e := s.call(http.MethodGet, "/batch", nil, "Accept-Encoding", "gzip, deflate")
			if e != nil || len(text) > 1000 {
				note(&m.batches, float64(batchSize), time.Since(at), e)
				continue
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	wg.Wait()
	m.posts.cpu, m.posts.wall = s.cpu()-cpu, time.Since(begin)
	return m, err
}

// depth is what a long queue costs.
type depth struct {
	groups   int
	resident float64
	own      float64
	status   time.Duration // median of /status-env
	batch    time.Duration // the first batch
}

// deep fills the queue to the given depths and measures at each.
func (s *server) deep(sh shape, depths []int) (out []depth, err error) {
	if err := s.prepare(256, sh.sequences, 1); err != nil {
		return nil, err
	}
	p := bodies(sh, 0)
	have := 0
	for _, n := range depths {
		if err := s.fill(p, n-have); err != nil {
			return out, err
		}
		d := depth{groups: n}
		d.resident, d.own = s.resident()
		latency, err := parallel(1, 21, func(int) error {
			_, _, err := s.call(http.MethodGet, "/status-env", []byte(`{"env_id":0}`))
			return err
		})
		if err != nil {
			return out, err
		}
		d.status = result{latency: latency}.quantile(0.5)
		begin := time.Now()
		if _, _, err := s.call(http.MethodGet, "/batch", nil); err != nil {
			return out, err
		}
		d.batch = time.Since(begin)
		out = append(out, d)
		have = n - 256/sh.sequences
	}
	return out, nil
}

// fill posts groups, many to a request so that a million of them fit into a benchmark.
func (s *server) fill(p *payloads, n int) error {
	list := 1
	if p.size < 16<<10 {
		list = 500
	}
	_, err := parallel(4, (n+list-1)/list, func(i int) error {
		if list == 1 {
			return s.post(p, i, false)
		}
		all := make([][]byte, min(list, n-i*list))
		for j := range all {
			all[j] = p.plain[(i+j)%len(p.plain)]
		}
		code, text, err := s.call(http.MethodPost, "/scored_data_list",
			append(append([]byte("["), bytes.Join(all, []byte(","))...), ']'))
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s answered a list with %d %s", s.name, code, text)
		}
		return err
	})
	return err
}
