package sizing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// asleep is the GPU memory of a server that sleeps: its context and CUDA graphs.
const asleep = gib

// couple is a trainer and the inference blocks that sleep while it works.
type couple struct {
	sync    addr.Block
	trainer addr.Block
	servers []addr.Block
	asked   bool // colocated = "sleep", not auto
}

// setting is a block's own name of an attribute that has another name elsewhere.
func (s sized) setting(name string) string { return cmp.Or(s.Facts["name_of_"+name], name) }

// sleepSetting names the attribute by which the inference blocks of a sync block sleep.
func (c *checker) sleepSetting(s sized) string {
	var names []string
	for _, i := range c.needed(s, kind.Inference) {
		if name := i.setting("enable_sleep_mode"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, " or "), "enable_sleep_mode")
}

// couples finds the blocks that take turns on a GPU. The rule is that of the sync plugin: asked for, or every inference
// block can sleep and one of them is on a GPU of the trainer's (see meeting).
func (c *checker) couples() (list []couple) {
	for _, s := range c.of(kind.Sync) {
		var awake []string
		pair := couple{sync: s.Addr}
		for _, i := range c.needed(s, kind.Inference) {
			pair.servers = append(pair.servers, i.Addr)
			if i.Facts["sleeps"] != "true" {
				awake = append(awake, i.Addr.String())
			}
		}
		mode := s.Facts["colocated"]
		if mode == "sleep" && len(awake) > 0 {
			c.add("error", s.Addr, "colocated = \"sleep\", but "+strings.Join(awake, ", ")+" cannot sleep",
				"Set "+c.sleepSetting(s)+" = true there (engines sleep on a GPU only), or colocated = \"share\" here.")
			continue
		}
		if (mode != "auto" && mode != "sleep") || len(awake) > 0 || len(pair.servers) == 0 {
			continue
		}
		for _, t := range c.needed(s, kind.Trainer) {
			pair.trainer, pair.asked = t.Addr, mode == "sleep"
			list = append(list, pair)
		}
	}
	return list
}

// meeting drops the couples that were not asked for and that have no GPU in common.
func (c *checker) meeting(couples []couple) []couple {
	return slices.DeleteFunc(couples, func(p couple) bool {
		return !p.asked && !slices.ContainsFunc(p.servers, func(s addr.Block) bool { return c.mayMeet(p.trainer, s) })
	})
}

// mayMeet reports whether two blocks have a GPU in common, or may have one because their GPUs are unknown.
func (c *checker) mayMeet(a, b addr.Block) bool {
	mine, theirs := c.devices[a], c.devices[b]
	return len(mine) == 0 || len(theirs) == 0 || slices.ContainsFunc(mine, func(n string) bool {
		return slices.ContainsFunc(theirs, func(m string) bool { return on(c.blocks[a], n) == on(c.blocks[b], m) })
	})
}

// turns are the couples of which both sides are on this GPU.
func (d device) turns(couples []couple) (trainers, servers []addr.Block) {
	for _, p := range couples {
		if !slices.Contains(d.blocks, p.trainer) {
			continue
		}
		for _, s := range p.servers {
			if slices.Contains(d.blocks, s) {
				trainers, servers = append(trainers, p.trainer), append(servers, s)
			}
		}
	}
	return trainers, servers
}

// noteColocation says for each sync block how trainer and inference share the GPUs that they have in common.
func (c *checker) noteColocation(devices []device, couples []couple, m Machine) {
	for _, s := range c.of(kind.Sync) {
		if s.Facts["colocated"] == "" {
			continue
		}
		sleeps := slices.ContainsFunc(couples, func(p couple) bool { return p.sync == s.Addr })
		var names []string
		beside := 0.0
		for _, d := range devices {
			if c.meet(d, s) {
				names = append(names, d.name)
				beside = max(beside, total(c.loads(d, m, nil, nil)))
			}
		}
		switch where := strings.Join(names, ", "); {
		case len(names) == 0 && sleeps && len(devices) > 0:
			c.add("warning", s.Addr, "inference sleeps while the trainer works, but they have no GPU in common",
				"Rollouts stop during each step and no memory is saved. Set colocated = \"share\", or remove "+
					c.sleepSetting(s)+".")
		case len(names) == 0:
		case sleeps:
			c.add("info", s.Addr, "colocated: inference sleeps while the trainer works on GPU "+where,
				c.why(s, beside, m))
		default:
			c.add("info", s.Addr, "colocated: trainer and inference share GPU "+where,
				"Not every inference block has "+c.sleepSetting(s)+" = true. Working at the same time, both share the "+
					"GPU's time: their throughput is a few percent lower than one after the other.")
		}
	}
}

// warnOfSharedGPUs warns of servers of one block on one GPU.
func (c *checker) warnOfSharedGPUs(devices []device) {
	for _, d := range devices {
		servers := map[addr.Block]int{}
		for _, a := range d.blocks {
			if a.Kind == kind.Inference {
				servers[a]++
			}
			if servers[a] == 2 {
				c.add("warning", a, "more than one of its servers is on GPU "+d.name, "They take turns on it, and sample less "+
					"than one server would: with two of vLLM on an H100 a step took 1.7 times as long. Give each a GPU of its "+
					"own, or start fewer.")
			}
		}
	}
}

// why gives the reason for sleeping.
func (c *checker) why(s sized, beside float64, m Machine) string {
	text := "Every inference block has " + c.sleepSetting(s) + " = true."
	if s.Facts["colocated"] == "sleep" {
		text = "colocated = \"sleep\"."
	}
	switch {
	case m.GPUMemory == 0 || beside == 0:
		return text
	case beside > m.GPUMemory:
		return text + fmt.Sprintf(" At the same time they would need %s of %s.", human(beside), human(m.GPUMemory))
	}
	return text +
		fmt.Sprintf(
			" Both would also fit at the same time (%s of %s): colocated = \"share\" saves a tenth of a second a step "+
				"and rollouts continue during steps.", human(beside), human(m.GPUMemory))
}

// meet reports whether a sync block's trainer and one of its inference blocks are on a GPU.
func (c *checker) meet(d device, s sized) bool {
	on := func(k kind.Kind) bool {
		return slices.ContainsFunc(c.needed(s, k), func(b sized) bool { return slices.Contains(d.blocks, b.Addr) })
	}
	return on(kind.Trainer) && on(kind.Inference)
}

// without drops the parts of a sum that a fact names.
func without(amounts []sdk.Amount, parts string) (kept []sdk.Amount) {
	out := strings.Split(parts, ",")
	for _, a := range amounts {
		if !slices.Contains(out, a.Part) {
			kept = append(kept, a)
		}
	}
	return kept
}
