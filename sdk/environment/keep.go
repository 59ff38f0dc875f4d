package environment

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/outputs"
)

const (
	keepLease = 15 * time.Second // of one request that the policy version stays
	// keepMost bounds how long an evaluation delays weight updates.
	keepMost = 2 * time.Minute
)

// keeper asks the gateway of an inference block to keep its policy version for a while (POST keep, package gateway).
type keeper struct {
	url, token string
	http       *http.Client
}

// keep asks for it until the function that it returns is called, for two minutes at most. Servers that do not know it,
// as external ones, change nothing.
func (k keeper) keep(ctx context.Context) (release func()) {
	if k.url == "" || k.token == "" {
		return func() {}
	}
	id := rand.Text()
	if k.ask(ctx, id, keepLease) != nil {
		return func() {}
	}
	keeping, cancel := context.WithTimeout(ctx, keepMost)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(keepLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-keeping.Done():
				return
			case <-tick.C:
				_ = k.ask(keeping, id, keepLease) // the lease ends by itself
			}
		}
	}()
	return func() {
		cancel()
		<-over
		_ = k.ask(context.WithoutCancel(ctx), id, 0)
	}
}

func (k keeper) ask(ctx context.Context, id string, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(map[string]any{"id": id, "lease_seconds": lease.Seconds()})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(k.url, "/")+"/recipe/v1/keep",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	response, err := k.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("keep the policy version: HTTP %d", response.StatusCode)
	}
	return nil
}

// keeperOf is that of an inference block; client reaches it.
func keeperOf(served outputs.Inference, client *http.Client) keeper {
	return keeper{url: served.ControlURL, token: served.ControlToken, http: client}
}
