package trajectory

import (
	"encoding/json"
	"fmt"
)

// Batch is what a trainer trains one step on: groups whose sequences add up to exactly the registered batch_size.
type Batch struct {
	Groups []Group `json:"batch"`
	// Unreadable are groups of the batch that this client cannot read. A trainer reports them, may keep them
	// (RejectedGroups), and acknowledges the batch as any other: they would be as unreadable the next time.
	Unreadable []Unreadable `json:"-"`
	// ID is set when the batch is leased: Ack it when the step is done.
	ID string `json:"id"`
	// LeaseSeconds is how long the batch is yours without Ack.
	LeaseSeconds float64 `json:"lease_seconds"`
}

// Unreadable is a group that does not fit into a Group, such as one with a token id of 10^26. recipe's server refuses
// those, other servers and older stores may hold them.
type Unreadable struct {
	JSON json.RawMessage
	Err  error
}

// batchReply is the answer to GET /batch.
type batchReply struct {
	Batch
	Status  string `json:"status"`
	Message string `json:"message"`
}

// decode reads the whole reply at once, and one group after the other when that fails: a group that cannot be read must
// not take the others with it.
func (b *batchReply) decode(text []byte) error {
	if err := json.Unmarshal(text, b); err == nil {
		return nil
	}
	var parts struct {
		Batch        []json.RawMessage `json:"batch"`
		ID           string            `json:"id"`
		LeaseSeconds float64           `json:"lease_seconds"`
		Status       string            `json:"status"`
		Message      string            `json:"message"`
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	*b = batchReply{
		Batch:   Batch{ID: parts.ID, LeaseSeconds: parts.LeaseSeconds},
		Status:  parts.Status,
		Message: parts.Message,
	}
	for i, part := range parts.Batch {
		var g Group
		if err := json.Unmarshal(part, &g); err != nil {
			b.Unreadable = append(
				b.Unreadable,
				Unreadable{JSON: part, Err: fmt.Errorf("reading group %d of the batch: %w", i, err)},
			)
			continue
		}
		b.Groups = append(b.Groups, g)
	}
	return nil
}
