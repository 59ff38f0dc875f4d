package parse

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Observer is a block that watches the run and is no part of it: alert, evaluation or tracking.
type Observer struct {
	Kind    string
	Tracker string // of tracking
	Name    string
	Body    *hclsyntax.Body
	Header  hcl.Range
}

// Address is how the block is called in messages.
func (o *Observer) Address() string {
	if o.Tracker != "" {
		return o.Kind + "." + o.Tracker + "." + o.Name
	}
	return o.Kind + "." + o.Name
}
