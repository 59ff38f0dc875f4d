package sync

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// setup is a configuration with what it leads to: the settings that auto stands for, and clients of the blocks that it
// names.
type setup struct {
	config       Config // in_flight is not auto any more
	transport    transport.Name
	why          string // this transport
	kept         string // why in_flight is what it is
	colocated    bool
	trainer      *weightclient.Client
	servers      []*server
	trajectories *trajectory.Client // nil: none is configured
}

// setup decides what a configuration leaves open, and asks the blocks for what their outputs do not say. The directory
// is that of the sync block.
func (c Config) setup(ctx context.Context, dir string) (*setup, error) {
	s := &setup{}
	err := s.connect(c)
	if err == nil {
		err = s.decide(ctx, c, dir)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// connect makes the clients.
func (s *setup) connect(c Config) error {
	var t outputs.Trainer
	if err := c.Trainer.Decode(&t); err != nil {
		return err
	}
	s.trainer = weightclient.New(t.ControlURL, t.ControlToken)
	for _, r := range c.Inference {
		var out outputs.Inference
		if err := r.Decode(&out); err != nil {
			return err
		}
		if out.ControlURL == "" {
			return &sdk.Error{
				Summary: r.Address + " has no control endpoint, so its weights cannot be changed",
				Remedy: "an external server can be trained against only through a gateway of recipe; remove it from " +
					"this block's inference list",
			}
		}
		client := gateway.NewClient(out.ControlURL, out.ControlToken)
		s.servers = append(s.servers, &server{address: r.Address, client: client})
	}
	var err error
	s.trajectories, err = trajectoriesOf(c.Trajectories)
	return err
}

// decide decides what the configuration leaves open.
func (s *setup) decide(ctx context.Context, c Config, dir string) error {
	unshared, err := s.unshared(ctx, c, dir)
	if err != nil {
		return err
	}
	if s.config, s.kept, err = c.decided(unshared); err != nil {
		return err
	}
	if s.transport, s.why, err = s.config.choose(unshared); err != nil {
		return err
	}
	s.colocated, err = s.config.colocate()
	return err
}

// close frees connections.
func (s *setup) close() {
	if s.trainer != nil {
		s.trainer.Close()
	}
	for _, v := range s.servers {
		v.client.Close()
	}
}

func trajectoriesOf(r *spec.Ref) (*trajectory.Client, error) {
	if r == nil || r.Address == "" {
		return nil, nil
	}
	var out outputs.Trajectories
	if err := r.Decode(&out); err != nil {
		return nil, err
	}
	return trajectory.New(out.URL, trajectory.WithToken(out.Token))
}

// configure adopts a configuration.
func (s *syncer) configure(ctx context.Context, c Config) error {
	next, err := c.setup(ctx, s.dir)
	if err != nil {
		return err
	}
	if next.transport != s.transport {
		s.host.Log("info", fmt.Sprintf("weights move by %s (%s)", next.transport, next.why))
	}
	if next.config.InFlight != s.config.InFlight {
		s.host.Log("info", fmt.Sprintf("requests in flight when new weights come: %s (%s)", next.config.InFlight, next.kept))
	}
	s.close()
	s.setup, s.text = *next, nil
	return nil
}
