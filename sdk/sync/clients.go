package sync

import (
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
)

// Trainer is the client of a trainer's control endpoint: Attach takes charge of its weights, Pending waits for a
// version, Publish asks for its weights, Logprobs for what they answer, and Synced lets training continue.
type Trainer = weightclient.Client

// NewTrainer returns a client for the control endpoint in a trainer's outputs.
func NewTrainer(controlURL, token string) *Trainer { return weightclient.New(controlURL, token) }

// Errors of a trainer's client.
var (
	ErrOver    = weightclient.ErrOver    // the trainer has ended: no further version follows
	ErrAway    = weightclient.ErrAway    // the trainer's address does not answer; it may be starting again
	ErrRefused = weightclient.ErrRefused // the trainer answered with an error, which follows in the text
)

// Attach is how a sync block takes charge of a trainer's weights.
type Attach = weightserver.Attach

// Done reports what became of a version.
type Done = weightserver.Done

// Gateway is the client of the control endpoint of an inference block: Hold keeps requests back, UpdateWeights loads a
// version into each replica and compares log-probabilities, Resume lets requests through.
type Gateway = gateway.Client

// NewGateway returns a client for the control endpoint in the outputs of an inference block.
func NewGateway(controlURL, token string) *Gateway { return gateway.NewClient(controlURL, token) }

// HoldRequest asks a gateway to keep requests back, for a bounded time.
type HoldRequest = gateway.HoldRequest

// WeightUpdate asks a gateway to load a version and to compare it with a Check.
type WeightUpdate = gateway.WeightUpdate

// Check is a text, as tokens, with the trainer's log-probabilities of it.
type Check = gateway.Check
