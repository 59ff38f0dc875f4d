package trajectory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Registered knows under which id an environment is registered, and notes it in a file, so that the next life can say
// goodbye for one that was killed: batches would wait for its min_batch_allocation until it counts as silent.
type Registered struct {
	File string
	now  *registration // in this life, noted or not
}

type registration struct {
	EnvID int    `json:"env_id"`
	API   string `json:"api"` // a fingerprint: the address may hold a token
}

// Keep notes the id that a trajectory API has given.
func (r *Registered) Keep(c *Client, id int) error {
	r.now = &registration{EnvID: id, API: c.fingerprint()}
	data, err := json.Marshal(r.now)
	if err != nil {
		return err
	}
	if err := regular.WriteFile(r.File, data); err != nil {
		return fmt.Errorf("note under which id the environment is registered: %w", err)
	}
	return nil
}

// Leave says goodbye under the id of this life, else under the one that is noted, where this API gave it, and forgets
// it. Nothing depends on its success: the API forgets silent environments by itself.
func (r *Registered) Leave(ctx context.Context, c *Client) {
	noted := r.now
	if data, err := regular.ReadFile(r.File, regular.Record); err == nil && noted == nil {
		noted = &registration{}
		_ = json.Unmarshal(data, noted) // half of a file names no API
	}
	r.now = nil
	_ = os.Remove(r.File)
	if noted == nil || noted.API != c.fingerprint() {
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
