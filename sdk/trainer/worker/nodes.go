package worker

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// onNodes are the commands of a program on each machine of the block, to be run on this one.
func onNodes(argv []string) ([][]string, error) {
	addresses := nodes.Addresses()
	if len(addresses) < 2 {
		return [][]string{argv}, nil
	}
	// torchrun of the first machine listens there for the others. The port is free now; if it is taken meanwhile, the
	// attempt fails and the next one has another.
	l, err := net.Listen("tcp", net.JoinHostPort(addresses[0], "0"))
	if err != nil {
		return nil, fmt.Errorf("find a port at which the machines of the trainer meet: %w", err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		return nil, err
	}
	const after = 3 // python -m torch.distributed.run
	var out [][]string
	for n := range addresses {
		own := slices.Insert(slices.Clone(argv), after, "--node-rank", strconv.Itoa(n), "--master-addr", addresses[0],
			"--master-port", port)
		out = append(out, nodes.Command(n, own))
	}
	return out, nil
}

// nameOn names the program on a machine of the block, and its log.
func nameOn(machine int) string {
	if machine == 0 {
		return "worker"
	}
	return fmt.Sprintf("worker-%d", machine)
}

// lost gives the number of each further machine on which the program has failed.
func (p process) lost() <-chan int {
	out := make(chan int, len(p.others))
	for i, program := range p.others {
		go func() {
			<-program.Done()
			if program.Err() != nil {
				out <- i + 1
			}
		}()
	}
	return out
}

// endedOn explains why a trainer on several machines has failed when the program on a further one has.
func (t *Trainer[C]) endedOn(machine int, program *proc.Program) error {
	err := Diagnose(program.Err(), program.Tail(logTail), t.program.Symptoms)
	where := fmt.Sprintf("on machine %d (%s), counted from 0: ", machine, nodes.Addresses()[machine])
	var described *sdk.Error
	if !errors.As(err, &described) {
		return fmt.Errorf("%s%w", where, err)
	}
	more := *described
	more.Summary = where + more.Summary
	return &more
}
