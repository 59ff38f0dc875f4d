package inference

import "github.com/recipe-rl/recipe/sdk"

// Adopter is an Engine that takes note of weights while none of its servers is up, so that an update of several
// inference blocks does not wait for one whose servers are being started again.
type Adopter interface {
	// Down reports whether no server is up, so that Load would wait for one that is being started again.
	Down() bool
	// Adopt says that these weights are to be served from now on. Servers come up with them, or with others that Replicas
	// gives the version of: then Load brings them.
	Adopt(w sdk.Weights)
}

func (h *host) down() bool {
	engine, err := h.started()
	a, ok := engine.(Adopter)
	return err == nil && ok && a.Down()
}

// adopt is only called while down says so.
func (h *host) adopt(w sdk.Weights) error {
	engine, err := h.started()
	if err != nil {
		return err
	}
	if w, err = h.received.local(w); err == nil {
		err = h.inside(w)
	}
	if err != nil {
		return err
	}
	return h.Call(func() error {
		engine.(Adopter).Adopt(w)
		return nil
	})
}
