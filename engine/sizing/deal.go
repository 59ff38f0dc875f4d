package sizing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// Devices are the GPUs of blocks.
type Devices map[addr.Block][]string

// deal assigns GPUs to blocks: those that a block names, or as many as it asks for, of those that the fewest others
// use. A trainer and the servers that sleep for it get the same ones. With fewer GPUs than all ask for together,
// blocks share, and memory says whether they fit. The GPUs of an unknown machine are numbered.
func (c *checker) deal(m Machine, couples []couple, kept Devices) Devices {
	dealt, taken := Devices{}, map[string]int{}
	give := func(a addr.Block, names []string) {
		dealt[a] = names
		for _, n := range names {
			taken[on(c.blocks[a], n)]++
		}
	}
	var open []addr.Block
	for _, a := range c.order {
		switch p := c.blocks[a].Meta.Placement; {
		case p == nil:
		case len(p.Devices) > 0:
			give(a, p.Devices)
		case p.GPUs > 0 && p.GPUs == len(kept[a]) && elsewhere(p) == "" && among(m.Devices, kept[a]):
			give(a, kept[a])
		case p.GPUs > 0:
			open = append(open, a)
		}
	}
	for _, a := range open {
		b := c.blocks[a]
		want, free := b.Meta.Placement.GPUs, m.Devices
		if elsewhere(b.Meta.Placement) != "" {
			free = nil
		} else if len(free) > 0 && want > len(free) {
			c.add("error", a, fmt.Sprintf("placement asks for %d GPUs; this machine has %d (%s)", want, len(free),
				strings.Join(free, ", ")),
				fmt.Sprintf(
					"Lower gpus to %d, or run the recipe on a machine with more. CUDA_VISIBLE_DEVICES limits the "+
						"GPUs that recipe sees.", len(free)))
			want = len(free)
		}
		names := partners(couples, dealt, a, want)
		for len(names) < want {
			names = append(names, c.idlest(b, free, names, taken))
		}
		give(a, names)
	}
	return dealt
}

// idlest is the first of the GPUs with the fewest blocks; without a list there is no limit.
func (c *checker) idlest(b sized, free, but []string, taken map[string]int) (best string) {
	if len(free) == 0 {
		for i := 0; ; i++ {
			if n := strconv.Itoa(i); taken[on(b, n)] == 0 && !slices.Contains(but, n) {
				return n
			}
		}
	}
	for _, n := range free {
		if !slices.Contains(but, n) && (best == "" || taken[on(b, n)] < taken[on(b, best)]) {
			best = n
		}
	}
	return best
}

// partners are the GPUs of the blocks with which a block takes turns, at most as many as it asks for.
func partners(couples []couple, dealt Devices, a addr.Block, want int) (names []string) {
	add := func(other addr.Block) {
		for _, n := range dealt[other] {
			if len(names) < want && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	for _, pair := range couples {
		switch {
		case pair.trainer == a:
			for _, s := range pair.servers {
				add(s)
			}
		case slices.Contains(pair.servers, a):
			add(pair.trainer)
		}
	}
	return names
}

// settle asks plugins again for the needs of blocks that have been assigned GPUs.
func (c *checker) settle(size Sizer, m Machine) {
	if len(m.Devices) == 0 {
		return
	}
	for _, a := range c.order {
		b := c.blocks[a]
		if p := b.Meta.Placement; p != nil && len(p.Devices) == 0 && len(c.devices[a]) > 0 && elsewhere(p) == "" {
			block, placement := *b.Block, *p
			placement.Devices = c.devices[a]
			block.Meta.Placement = &placement
			c.blocks[a] = sizedBy(size, &block)
		}
	}
}

// here drops GPUs of other machines, or of an unknown one.
func (c *checker) here(m Machine) Devices {
	out := Devices{}
	for a, names := range c.devices {
		if p := c.blocks[a].Meta.Placement; elsewhere(p) == "" && (len(m.Devices) > 0 || len(p.Devices) > 0) {
			out[a] = names
		}
	}
	return out
}

// occupied groups blocks by their GPUs.
func (c *checker) occupied() []device {
	blocks := map[string][]addr.Block{}
	for _, a := range c.order {
		for _, n := range c.devices[a] {
			n = on(c.blocks[a], n)
			blocks[n] = append(blocks[n], a)
		}
	}
	out := make([]device, 0, len(blocks))
	for n, list := range blocks {
		out = append(out, device{n, list})
	}
	slices.SortFunc(out, func(a, b device) int { return strings.Compare(a.name, b.name) })
	return out
}

// on names a GPU of the machine that a block is placed on.
func on(b sized, device string) string {
	if where := elsewhere(b.Meta.Placement); where != "" {
		return where + "/" + device
	}
	return device
}

// elsewhere is the host or executor that a block is placed on; empty: this machine.
func elsewhere(p *sdk.Placement) string {
	if p == nil {
		return ""
	}
	if p.Host != "" {
		return p.Host
	}
	return p.Executor
}

func among(all, some []string) bool {
	return !slices.ContainsFunc(some, func(n string) bool { return !slices.Contains(all, n) })
}
