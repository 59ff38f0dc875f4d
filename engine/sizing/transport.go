package sizing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// transports says for each sync block by which way weights will move, and why not by a quicker one. The order of
// preference is the sync plugin's own (its fact "transports"); what a block offers, and where its weights are, is that
// block's.
func (c *checker) transports() {
	for _, s := range c.of(kind.Sync) {
		trainers, servers := c.needed(s, kind.Trainer), c.needed(s, kind.Inference)
		if s.Facts["transports"] == "" || len(trainers) != 1 || len(servers) == 0 {
			continue
		}
		sides := append(slices.Clone(trainers), servers...)
		if slices.ContainsFunc(sides, func(b sized) bool { return b.Facts["transports"] == "" }) {
			continue // an external block, or one that does not say
		}
		var skipped []string
		chosen := ""
		for _, name := range strings.Split(s.Facts["transports"], ",") {
			why := unable(name, trainers[0], servers)
			if why == "" {
				chosen = name
				break
			}
			skipped = append(skipped, name+": "+why)
		}
		switch {
		case chosen == "" && s.Facts["transport"] != "auto":
			c.add("error", s.Addr, fmt.Sprintf("transport = %q cannot be used", s.Facts["transport"]),
				strings.Join(skipped, "; ")+". Set transport = \"auto\", or see docs/weights.md.")
		case chosen == "":
			c.add("error", s.Addr, "trainer and inference offer no transport in common", strings.Join(skipped, "; ")+
				".")
		default:
			c.chosen[trainers[0].Addr] = chosen
			c.add("info", s.Addr, "weights will move by "+chosen, reason(s, chosen, skipped, trainers[0], servers))
		}
	}
}

// reason is the detail of a choice.
func reason(s sized, chosen string, skipped []string, t sized, servers []sized) string {
	text := "It is what the recipe asks for."
	if s.Facts["transport"] == "auto" {
		text = "It is the quickest that all offer."
		if len(skipped) > 0 {
			text += " Not " + strings.Join(skipped, "; not ") + "."
		}
		if s.Facts["in_flight"] != "keep" && chosen == "ipc" {
			text += " Not live: that changes weights under requests that are being answered, which in_flight = " +
				"\"keep\" would allow."
		}
	}
	if memory(chosen) && t.Facts["devices"] == "" {
		text += fmt.Sprintf(
			" Both sides must reach the same memory when they run: one GPU, or none; else auto takes another way and "+
				"tells (%s).", names(append([]sized{t}, servers...)))
	}
	return text
}

// unable says why a transport cannot be used, as far as that is known before anything runs.
func unable(transport string, t sized, servers []sized) string {
	var lacking []string
	for _, b := range append([]sized{t}, servers...) {
		if !slices.Contains(strings.Split(b.Facts["transports"], ","), transport) {
			why := b.Addr.String() + " does not offer it"
			if (memory(transport) || transport == "nccl") && b.Facts["no_memory"] != "" {
				why = b.Addr.String() + ": " + b.Facts["no_memory"]
			}
			lacking = append(lacking, why)
		}
	}
	if len(lacking) > 0 {
		return strings.Join(lacking, ", ")
	}
	if !memory(transport) && transport != "nccl" {
		return ""
	}
	for _, b := range servers {
		if host(t) != host(b) {
			return fmt.Sprintf("%s and %s are on different machines", t.Addr, b.Addr)
		}
		mine, theirs := list(t.Facts["devices"]), list(b.Facts["devices"])
		if transport == "nccl" && len(mine) > 0 && slices.Equal(mine[:1], theirs) {
			return fmt.Sprintf("%s and %s are on GPU %s, and NCCL needs one for each", t.Addr, b.Addr, mine[0])
		}
		if memory(transport) && len(mine) > 0 && len(theirs) > 0 && !slices.Contains(theirs, mine[0]) {
			return fmt.Sprintf("%s trains on GPU %s, which %s does not see (peer_devices lets it)", t.Addr, mine[0],
				b.Addr)
		}
		if hasGPU(t) != hasGPU(b) {
			return fmt.Sprintf("only one of %s and %s has a GPU in its placement", t.Addr, b.Addr)
		}
	}
	return ""
}

// hasGPU says whether a block is to be on one, named or not.
func hasGPU(b sized) bool {
	p := b.Meta.Placement
	return p != nil && (p.GPUs > 0 || len(p.Devices) > 0)
}

// memory says whether a transport copies out of the trainer's memory.
func memory(transport string) bool { return transport == "live" || transport == "ipc" }

func host(b sized) string {
	if b.Meta.Placement == nil {
		return ""
	}
	return b.Meta.Placement.Host
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
