package weightserver

import "github.com/recipe-rl/recipe/sdk/transport"

// Attach is what a sync block says when it takes charge of a trainer's weights.
type Attach struct {
	Address   string         `json:"address"`   // of the sync block
	Every     int64          `json:"every"`     // optimizer steps between publications
	Transport transport.Name `json:"transport"` // how weights will move
	// highest policy version that inference serves, as far as the sync block sees
	Version int64 `json:"version,omitempty"`
	// inference lost the weights: publish at the next step whatever the period says
	Republish bool `json:"republish,omitempty"`
	Colocated bool `json:"colocated,omitempty"` // trainer and inference take turns on the GPU
}

// Publication is what a trainer waits for: that a policy version is taken, or, where it shares its GPU with inference,
// that it gets its turn or that the turn is taken back.
type Publication struct {
	Kind    PublicationKind `json:"kind,omitempty"`
	Version int64           `json:"version"` // of a turn: the version that inference serves
	Step    int64           `json:"step"`
	// Ahead says that the trainer need not wait until the version is served: once the weights have been read it may be
	// told so by Taken.
	Ahead bool `json:"ahead,omitempty"`
}

// Taken reports that the weights of a publication and their log-probabilities have been read.
type Taken struct {
	Version int64 `json:"version"`
	// what the trajectory API will limit staleness by once it knows the version; nil: nothing
	MaxStaleness *int64 `json:"max_staleness,omitempty"`
}

// PublicationKind describes what a trainer waits for.
type PublicationKind string

// What a trainer waits for. Only a sync block that attached as colocated is asked for turns.
const (
	WeightsReady PublicationKind = ""     // weights of Version wait to be taken; acknowledged by Done
	TurnWanted   PublicationKind = "turn" // the GPU is wanted for a step; answered by TurnGiven
	TurnOver     PublicationKind = "rest" // the GPU is free again and there are no new weights; acknowledged by Done
)

// TurnGiven reports that a trainer has the GPU for itself, or why it cannot have it.
type TurnGiven struct {
	Step  int64  `json:"step"`
	Error string `json:"error,omitempty"` // empty: inference has given its memory back
}

// Done describes how a publication ended.
type Done struct {
	Version int64  `json:"version"`
	Error   string `json:"error,omitempty"` // empty: inference serves the version
}

// State is the state of a trainer.
type State struct {
	Phase   string       `json:"phase"` // "training", "waiting" (for its turn), "syncing" or "over"
	Step    int64        `json:"step"`
	Version int64        `json:"version"`
	Pending *Publication `json:"pending,omitempty"`
	Sync    string       `json:"sync,omitempty"` // the attached sync block
	Turn    bool         `json:"turn,omitempty"` // it has the GPU for itself
}

// PublishRequest asks a trainer to write its current weights.
type PublishRequest struct {
	Version   int64          `json:"version"`
	Transport transport.Name `json:"transport"`
	Dir       string         `json:"dir"` // where to put them; exists
	// Keep asks that weights in memory keep these values until the next publication, although training continues: there
	// will be steps without one, and an inference block that is restarted meanwhile must still find this version.
	Keep bool `json:"keep,omitempty"`
	// Have is the key of the handles that the sync block holds. A trainer whose handles are the same may answer with
	// their key and "same": true: of a large model they are 160 kB, which take more time than the copy.
	Have string `json:"have,omitempty"`
}
