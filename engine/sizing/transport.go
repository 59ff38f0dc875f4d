package sizing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// transports says for each sync block which transport weights will use, and why not a faster one. The order of
// preference is the sync plugin's (its fact "transports"); each block reports its own transports and devices.
func (c *checker) transports(couples []couple) {
	for _, s := range c.of(kind.Sync) {
		trainers, servers := c.needed(s, kind.Trainer), c.needed(s, kind.Inference)
		if s.Facts["transports"] == "" || len(trainers) != 1 || len(servers) == 0 {
			continue
		}
		sides := append(slices.Clone(trainers), servers...)
		if slices.ContainsFunc(sides, func(b sized) bool { return b.Facts["transports"] == "" }) {
			continue // an external block, or one that reports none
		}
		allowed := transport.Names(list(s.Facts["transports"]))
		asked := s.Facts["transport"] != string(transport.Auto)
		chosen, skipped := choose(allowed, asked, trainers[0], servers)
		mode, why := s.Facts["in_flight"], ""
		if mode == sync.Auto && chosen != "" {
			mode, why = c.inFlight(s, trainers[0], chosen, couples)
			if mode != sync.Keep && !asked { // live would not let them end
				chosen, skipped = choose(slices.DeleteFunc(allowed, func(name transport.Name) bool {
					return name == transport.Live
				}), asked, trainers[0], servers)
			}
		}
		switch {
		case chosen == "" && s.Facts["transport"] != string(transport.Auto):
			c.add("error", s.Addr, fmt.Sprintf("transport = %q cannot be used", s.Facts["transport"]),
				strings.Join(skipped, "; ")+". Set transport = \"auto\", or see docs/weights.md.")
		case chosen == "":
			c.add("error", s.Addr, "trainer and inference have no transport in common", strings.Join(skipped, "; ")+
				".")
		default:
			c.chosen[trainers[0].Addr] = chosen
			c.add("info", s.Addr, "weights move by "+string(chosen), reason(s, mode, chosen, skipped, trainers[0], servers))
			if chosen == transport.LoRA {
				c.ranks(trainers[0], servers)
			}
			if why != "" {
				c.add("info", s.Addr, inFlightWords[mode], "in_flight = auto is "+mode+": "+why+".")
			}
		}
	}
}

// ranks finds servers that do not take adapters of a trainer's rank: they would refuse the first one, after the first
// step.
func (c *checker) ranks(t sized, servers []sized) {
	rank, known := t.fact("lora_rank")
	for _, b := range servers {
		if most, said := b.fact("max_lora_rank"); known && said && rank > most {
			c.add("error", b.Addr, fmt.Sprintf("it takes adapters up to rank %d, and those of %s are of rank %d", most, t.Addr,
				rank), fmt.Sprintf("Set max_lora_rank = %d or more in it, or a rank up to %d in %s.", rank, most, t.Addr))
		}
	}
}

// inFlightWords say what happens to requests in flight.
var inFlightWords = map[string]string{
	sync.Keep:  "answers go on while new weights come",
	sync.Drain: "answers end before new weights come",
}

// inFlight decides in_flight = auto as the sync block will when it runs.
func (c *checker) inFlight(s, t sized, chosen transport.Name, couples []couple) (mode, why string) {
	o := sync.Overlap{Transport: chosen, Trainer: t.Addr.String(), Corrects: t.Facts["corrects"],
		Live:   s.Facts["transport"] == string(transport.Live),
		Sleeps: slices.ContainsFunc(couples, func(p couple) bool { return p.sync == s.Addr })}
	for _, b := range append(c.needed(s, kind.Trajectories), s) {
		if limit, ok := b.fact("max_staleness"); ok {
			o.Staleness = sync.Least(o.Staleness, &limit)
		}
	}
	return o.Decide()
}

// choose returns the first transport that can be used, empty when there is none, and why those before cannot. Asked:
// the recipe names it.
func choose(names []transport.Name, asked bool, t sized, servers []sized) (chosen transport.Name, skipped []string) {
	for _, name := range names {
		why := unable(name, asked, t, servers)
		if why == "" {
			return name, skipped
		}
		skipped = append(skipped, string(name)+": "+why)
	}
	return "", skipped
}

// reason is the detail of a choice.
func reason(s sized, mode string, chosen transport.Name, skipped []string, t sized, servers []sized) string {
	text := "The recipe sets it."
	if s.Facts["transport"] == string(transport.Auto) {
		text = "It is the fastest that all blocks support."
		if len(skipped) > 0 {
			text += " Not " + strings.Join(skipped, "; not ") + "."
		}
		if mode != sync.Keep && chosen == transport.IPC {
			text += " Not live: it changes weights during requests, which only in_flight = \"keep\" allows."
		}
	}
	if chosen.Files() && apart(t, servers) && s.Facts["transport"] == string(transport.Auto) {
		text += fmt.Sprintf(" Every machine must see the files of %s: if one does not, auto chooses delta, which sends what "+
			"has changed, and reports it.", s.Addr)
	}
	if chosen.Memory() && t.Facts["devices"] == "" {
		text += fmt.Sprintf(
			" Both sides must reach the same memory when they run: the same GPU, or none; else auto chooses another "+
				"transport and reports it (%s).", names(append([]sized{t}, servers...)))
	}
	return text
}

// unable explains why a transport cannot be used, as far as known before anything runs.
func unable(name transport.Name, asked bool, t sized, servers []sized) string {
	name = name.Needs()
	var lacking []string
	for _, b := range append([]sized{t}, servers...) {
		if !slices.Contains(list(b.Facts["transports"]), string(name)) {
			why := b.Addr.String() + " does not support it"
			if name.Tensors() && b.Facts["no_memory"] != "" {
				why = b.Addr.String() + ": " + b.Facts["no_memory"]
			}
			lacking = append(lacking, why)
		}
	}
	if len(lacking) > 0 {
		return strings.Join(lacking, ", ")
	}
	if !name.Tensors() {
		return ""
	}
	for _, b := range servers {
		if b.Meta.Resources.Nodes > 1 {
			return fmt.Sprintf("%s runs on %d machines", b.Addr, b.Meta.Resources.Nodes)
		}
		if host(t) != host(b) {
			if why := between(name, asked, t, b); why != "" {
				return why
			}
		}
		mine, theirs := list(t.Facts["devices"]), list(b.Facts["devices"])
		if name == transport.NCCL && len(mine) > 0 && slices.Equal(mine[:1], theirs) {
			return fmt.Sprintf("%s and %s are both on GPU %s; NCCL needs a GPU for each", t.Addr, b.Addr, mine[0])
		}
		if name.Memory() && len(mine) > 0 && len(theirs) > 0 && !slices.Contains(theirs, mine[0]) {
			return fmt.Sprintf("%s trains on GPU %s, which %s does not see (set peer_devices)", t.Addr, mine[0],
				b.Addr)
		}
		if hasGPU(t) != hasGPU(b) {
			return fmt.Sprintf("only one of %s and %s has a GPU in its placement", t.Addr, b.Addr)
		}
	}
	return ""
}

// between says why a transport does not lead from a trainer to a server on another machine; empty: it does. Tensors
// that are sent are not encrypted, so the recipe has to ask for it. A trainer without a job listens on loopback.
func between(name transport.Name, asked bool, t, b sized) string {
	text := fmt.Sprintf("%s and %s are on different machines", t.Addr, b.Addr)
	switch p := t.Meta.Placement; {
	case name != transport.NCCL:
		return text
	case !asked:
		return text + `, and tensors cross their network, unencrypted, only with transport = "nccl"`
	case p == nil || p.Executor == "":
		return text + fmt.Sprintf(", and %s has no executor, so it listens on its own machine only", t.Addr)
	}
	return ""
}

// hasGPU reports whether a block uses a GPU.
func hasGPU(b sized) bool {
	p := b.Meta.Placement
	return p != nil && (p.GPUs > 0 || len(p.Devices) > 0)
}

// apart reports whether a server runs on another machine than the trainer.
func apart(t sized, servers []sized) bool {
	return slices.ContainsFunc(servers, func(b sized) bool { return host(b) != host(t) })
}

// host is the machine of a block; a job without a named machine may run on any, so it counts as one of its own.
func host(b sized) string {
	p := b.Meta.Placement
	switch {
	case p == nil:
		return ""
	case p.Host == "" && p.Executor != "":
		return "the job of " + b.Addr.String()
	}
	return p.Host
}

func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

func names(blocks []sized) string {
	var out []string
	for _, b := range blocks {
		out = append(out, b.Addr.String())
	}
	return strings.Join(out, ", ")
}
