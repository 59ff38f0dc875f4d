package trajectory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Registered is a file that holds under which id an environment is registered, so that its next life can say goodbye
// for one that was killed: batches would wait for the min_batch_allocation of that one until it counts as silent.
type Registered string

type registration struct {
	EnvID int    `json:"env_id"`
	API   string `json:"api"` // a fingerprint: the address may hold a token
}

// Keep notes the id that a trajectory API has given.
func (r Registered) Keep(c *Client, id int) error {
	data, err := json.Marshal(registration{EnvID: id, API: c.fingerprint()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(string(r), data, 0o600); err != nil {
		return fmt.Errorf("note under which id the environment is registered: %w", err)
	}
	return nil
}

// Leave says goodbye for what is noted, where this API gave the id, and forgets it. Nothing depends on its success: the
// API forgets silent environments by itself.
func (r Registered) Leave(ctx context.Context, c *Client) {
	data, err := os.ReadFile(string(r))
	if err != nil {
		return
	}
	_ = os.Remove(string(r))
	var noted registration
	if json.Unmarshal(data, &noted) != nil || noted.API != c.fingerprint() {
		return
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.DisconnectEnv(leaving, noted.EnvID)
}

func (c *Client) fingerprint() string {
	sum := sha256.Sum256([]byte(c.base))
	return hex.EncodeToString(sum[:8])
}
