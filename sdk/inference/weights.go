package inference

import (
	"encoding/json"
	"fmt"

	"github.com/recipe-rl/recipe/sdk"
)

// updateOptions is what a gateway's weight update carries beyond the gateway's own fields.
type updateOptions struct {
	Format    string `json:"format,omitempty"`
	Precision string `json:"precision,omitempty"`
	Handles   string `json:"handles,omitempty"`
}

func (o *updateOptions) read(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, o); err != nil {
		return fmt.Errorf("options of a weight update: %w", err)
	}
	return nil
}

// UpdateOptions writes the part of published weights that a gateway's weight update carries in its options.
func UpdateOptions(w sdk.Weights) json.RawMessage {
	data, err := json.Marshal(updateOptions{Format: w.Format, Precision: w.Precision, Handles: w.Handles})
	if err != nil { // strings always encode
		panic(err)
	}
	return data
}
