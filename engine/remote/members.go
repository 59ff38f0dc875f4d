package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/engine/agent"
)

// missing are the machines of the job whose agents are not connected, and how the job ended if it has; changed is
// closed when that changes for one of them.
func (j *Job) missing() (nodes []int, over string, changed <-chan struct{}) {
	for i, p := range j.members {
		client, ended, next := p.state()
		if client == nil && changed == nil || over == "" && ended != "" {
			over, changed = ended, next
		}
		if client == nil {
			nodes = append(nodes, i)
		}
	}
	return nodes, over, changed
}

// name says in words which agents are waited for.
func (j *Job) name(missing []int) string {
	if len(j.members) == 1 {
		return "its agent has"
	}
	var hosts []string
	for _, p := range j.members {
		if client, _, _ := p.state(); client != nil {
			hosts = append(hosts, p.host())
		}
	}
	text := fmt.Sprintf("of its %d machines, numbers %s (counted from 0) have", len(j.members),
		strings.Trim(fmt.Sprint(missing), "[]"))
	if len(hosts) > 0 {
		text = "besides " + strings.Join(hosts, ", ") + ", " + text
	}
	return text
}

// group makes the agents of a job known to each other: the first may have programs started by the others.
func (j *Job) group(ctx context.Context) error {
	if len(j.members) == 1 {
		return nil
	}
	members := make([]agent.Member, len(j.members))
	for i, p := range j.members {
		via, err := p.via()
		if err != nil {
			return err
		}
		members[i] = agent.Member{Via: via, Name: p.name}
	}
	var errs []error
	for _, p := range j.members {
		errs = append(errs, p.do(ctx, func(c *agent.Client) error { return c.Group(ctx, members) }))
	}
	return errors.Join(errs...)
}

// over reports that the job has ended.
func (j *Job) over(how string) {
	for _, p := range j.members {
		p.end(how)
	}
}
