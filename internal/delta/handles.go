package delta

// The folders, in the directories of a trainer and of an inference block, with the weights that are handed out and that
// were received. They are copies that belong to one machine.
const (
	PublishedFolder = "published"
	ReceivedFolder  = "received"
)

// Handles name weights that are handed out as a stream: sdk.Weights.Handles, as JSON.
type Handles struct {
	Digest string `json:"digest"` // of the folder
	Path   string `json:"path"`   // of the weights in it, with slashes; "." is the folder
}
