package vllm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk/inference"
)

var _ inference.TokenCounter = (*Server)(nil)

// tokensMetric is vLLM's counter of generated tokens, one sample an engine.
const tokensMetric = "vllm:generation_tokens_total"

// GeneratedTokens implements inference.TokenCounter: a long generation is told from an engine that hangs.
func (s *Server) GeneratedTokens(ctx context.Context) (float64, error) {
	s.mu.Lock()
	var clients []*client
	for _, r := range s.replicas {
		if r.live && r.client != nil {
			clients = append(clients, r.client)
		}
	}
	s.mu.Unlock()
	if len(clients) == 0 {
		return 0, errors.New("no server of this block is up")
	}
	total := 0.0
	for _, c := range clients {
		n, err := c.generated(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// generated reads the counter of one server.
func (c *client) generated(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("GET /metrics: %w", err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("GET /metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return 0, &statusError{Method: http.MethodGet, Path: "/metrics", Status: resp.StatusCode}
	}
	return sumOf(io.LimitReader(resp.Body, maxAnswer), tokensMetric)
}

// sumOf adds up the samples of a metric in the Prometheus text format.
func sumOf(page io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(page)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	total, found := 0.0, false
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		if end := strings.LastIndexByte(rest, '}'); end >= 0 {
			rest = rest[end+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("GET /metrics: %s is %q, expected a number", name, fields[0])
		}
		total, found = total+v, true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("GET /metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("GET /metrics: there is no %s", name)
	}
	return total, nil
}
