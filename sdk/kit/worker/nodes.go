package worker

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// UsesNodes implements sdk.NodesUser: torchrun starts the program's ranks on all machines of the block.
func (*Trainer[C]) UsesNodes() {}

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

// unreachable is what the agent of this machine prints in place of a program whose machine is lost.
const unreachable = `machine \d+ of the job cannot be reached any more`

// unreached is what PyTorch says on a rank that has lost another one: the reason is on the other's machine.
var unreached = regexp.MustCompile(`Connection (closed|reset) by peer|ncclRemoteError|remote process exited`)

// onlyUnreached reports whether a log tells of another rank that is gone, and not that its own machine is.
func onlyUnreached(log string) bool {
	away, _ := regexp.MatchString(unreachable, log)
	return !away && unreached.MatchString(log)
}

// lostAnother reports whether a rank has reported nothing but that another one is gone.
func (w *watch[C]) lostAnother() bool {
	return w.failure != nil && w.failure.Code == "internal" && unreached.MatchString(w.failure.Message)
}

// blamed is the failure of the program on a further machine, which explains that of the whole; nil: it does not.
func (w *watch[C]) blamed(ctx context.Context, machine int, program *proc.Program) error {
	switch {
	case ctx.Err() != nil, w.over != "", w.failure != nil && !w.lostAnother(): // that is why this one has ended
		return nil
	case onlyUnreached(program.Tail(logTail)): // its rank has lost another one, too
		return nil
	}
	return w.trainer.endedOn(machine, program)
}

// endOf is the result of the whole when the program on the first machine has ended. elsewhere is the failure of another
// one, where it is known. A rank that has lost another one may end before it: its machine is given a moment.
func (w *watch[C]) endOf(ctx context.Context, p process, elsewhere error, lost <-chan int) error {
	late := time.After(lastWords)
	for left := len(p.others); elsewhere == nil && left > 0 && w.lostAnother(); left-- {
		select {
		case n := <-lost:
			elsewhere = w.blamed(ctx, n, p.others[n-1])
		case <-late:
			left = 0
		case <-ctx.Done():
			left = 0
		}
	}
	return cmp.Or(elsewhere, w.end(ctx, p.program))
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
	e, settings := diagnose(program.Err(), program.Tail(logTail), t.program.Symptoms)
	t.locate(e, settings, e.Detail)
	e.Summary = fmt.Sprintf("on machine %d (%s), counted from 0: %s", machine, nodes.Addresses()[machine], e.Summary)
	return e
}
