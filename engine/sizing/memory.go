package sizing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

const gib = float64(1 << 30)

// usualCards are common sizes of GPU memory, in GiB, for a recipe that is planned on another machine.
func usualCards() []float64 { return []float64{16, 24, 40, 48, 80, 96, 141, 192} }

// device is one GPU and the blocks on it.
type device struct {
	name   string
	blocks []addr.Block
}

// load is the GPU memory of one block.
type load struct {
	a        addr.Block
	need     float64
	reserved bool // a fixed share of the card
	parts    []sdk.Amount
	lines    []string
}

// memory adds up the needs of each GPU's blocks and compares the sum with the card. Where blocks take turns, each turn
// must fit.
func (c *checker) memory(m Machine, couples []couple) {
	devices := c.occupied()
	for _, d := range devices {
		for _, a := range d.blocks {
			c.ownShare(a, m)
		}
		trainers, servers := d.turns(couples)
		loads, during := c.loads(d, m, nil, servers), ""
		if len(servers) > 0 {
			during = " while the trainer works"
			if serving := c.loads(d, m, trainers, nil); total(serving) > total(loads) {
				loads, during = serving, " while inference serves"
			}
		}
		c.compare(d, loads, during, m)
	}
	c.noteColocation(devices, couples, m)
	c.warnOfSharedGPUs(devices)
}

// ownShare finds a server whose share of the card is too small for its needs.
func (c *checker) ownShare(a addr.Block, m Machine) {
	b := c.blocks[a]
	need, parts := sum(b.Amounts, "gpu_memory")
	share, _ := strconv.ParseFloat(b.Facts["gpu_memory_utilization"], 64)
	if take := share * m.GPUMemory; take > 0 && need > take {
		c.add("error", a, fmt.Sprintf("does not fit: it needs %s; %s = %g gives it %s", human(need),
			b.setting("gpu_memory_utilization"), share, human(take)),
			strings.Join(explain(parts), "\n")+
				fmt.Sprintf("\nRaise %s to %.2f, or lower %s.", b.setting("gpu_memory_utilization"),
					ceil2(need/m.GPUMemory), b.setting("max_model_len")))
	}
}

// loads are the blocks of a GPU while some trainers rest and some servers sleep.
func (c *checker) loads(d device, m Machine, rest, sleep []addr.Block) (list []load) {
	for _, a := range d.blocks {
		b := c.blocks[a]
		amounts, note := b.Amounts, ""
		if by, known := c.chosen[a]; known && !by.Memory() {
			amounts = without(amounts, b.Facts["memory_transport_only"])
		}
		if slices.Contains(rest, a) {
			amounts, note = without(amounts, b.Facts["training_only"]), " between its steps"
		}
		need, parts := sum(amounts, "gpu_memory")
		share, _ := strconv.ParseFloat(b.Facts["gpu_memory_utilization"], 64)
		take := share * m.GPUMemory
		switch {
		case slices.Contains(sleep, a) && (need > 0 || take > 0):
			list = append(list, load{a: a, need: asleep,
				lines: []string{fmt.Sprintf("%s: %s asleep (context and CUDA graphs)", a, human(asleep))}})
		case take > 0: // a fixed share, into which its needs must fit
			list = append(list, load{a: a, need: take, reserved: true,
				lines: []string{fmt.Sprintf("%s: %s (%g of the card)", a, human(take), share)}})
		case need > 0:
			list = append(list, load{a: a, need: need, parts: parts,
				lines: append([]string{fmt.Sprintf("%s: %s%s", a, human(need), note)}, explain(parts)...)})
		}
	}
	return list
}

func total(loads []load) (sum float64) {
	for _, l := range loads {
		sum += l.need
	}
	return sum
}

// compare reports whether a GPU holds its blocks.
func (c *checker) compare(d device, loads []load, during string, m Machine) {
	var lines []string
	var largest load
	reserved := 0.0
	for _, l := range loads {
		lines = append(lines, l.lines...)
		switch {
		case l.reserved:
			reserved += l.need
		case l.need > largest.need:
			largest = l
		}
	}
	need := total(loads)
	if need == 0 {
		return
	}
	detail, first := strings.Join(lines, "\n"), d.blocks[0]
	switch {
	case m.GPUMemory == 0:
		c.add("info", first, fmt.Sprintf("GPU %s needs about %s%s%s", d.name, human(need), during, smallestCard(need)),
			detail)
	case need > m.GPUMemory:
		c.add("error", first, fmt.Sprintf("does not fit: GPU %s needs %s%s and has %s", d.name, human(need), during,
			human(m.GPUMemory)),
			detail+"\n"+c.advice(largest.a, largest.parts, need-m.GPUMemory, m.GPUMemory-(need-reserved))+
				c.sleepAdvice(d, during, m))
	default:
		c.add("info", first, fmt.Sprintf("GPU %s: %s of %s%s", d.name, human(need), human(m.GPUMemory), during), detail)
	}
}

// sleepAdvice suggests sleeping for a GPU that is too small for trainer and inference at the same time.
func (c *checker) sleepAdvice(d device, during string, m Machine) string {
	if during != "" {
		return ""
	}
	for _, s := range c.of(kind.Sync) {
		if s.Facts["colocated"] == "" || !c.meet(d, s) {
			continue
		}
		var trainers, servers []addr.Block
		for _, t := range c.needed(s, kind.Trainer) {
			trainers = append(trainers, t.Addr)
		}
		for _, i := range c.needed(s, kind.Inference) {
			servers = append(servers, i.Addr)
		}
		if need := max(total(c.loads(d, m, trainers, nil)), total(c.loads(d, m, nil, servers))); need <= m.GPUMemory {
			return fmt.Sprintf(
				"\nOr let them take turns, which needs %s: %s = true in the inference block, "+
					"colocated = \"auto\" in %s.", human(need), c.sleepSetting(s), s.Addr)
		}
	}
	return ""
}

// disk compares what checkpoints will take with what is free. A machine that is not to run the trainer, as its
// placement says, or that has no GPU, as those that check recipes in continuous integration, is hardly the one that
// keeps the checkpoints: there it is no error.
func (c *checker) disk(m Machine) {
	total, here := 0.0, !m.NoGPU
	var lines []string
	var first addr.Block
	for _, a := range c.order {
		need, parts := sum(c.blocks[a].Amounts, "disk")
		if need == 0 {
			continue
		}
		if total == 0 {
			first = a
		}
		total += need
		here = here && elsewhere(c.blocks[a].Meta.Placement) == ""
		lines = append(lines, fmt.Sprintf("%s: %s", a, human(need)))
		lines = append(lines, explain(parts)...)
	}
	if total == 0 || m.DiskFree == 0 || total <= m.DiskFree {
		return
	}
	severity, free := "error", "is free"
	if !here {
		severity, free = "warning", "is free on this machine"
	}
	c.add(severity, first, fmt.Sprintf("checkpoints need %s of disk, %s %s", human(total), human(m.DiskFree), free),
		strings.Join(lines, "\n")+
			"\nKeep fewer checkpoints, write them less often, or put the run on a larger disk.")
}

func sum(amounts []sdk.Amount, resource string) (total float64, parts []sdk.Amount) {
	for _, a := range amounts {
		if a.Resource == resource {
			total += a.Value
			parts = append(parts, a)
		}
	}
	return total, parts
}

func explain(parts []sdk.Amount) []string {
	out := make([]string, 0, len(parts))
	for _, p := range parts {
		out = append(out, fmt.Sprintf("  %-12s %10s  %s", p.Part, human(p.Value), p.How))
	}
	return out
}

// advice names the largest part of the largest block and the size that it must have at most; or the share that
// inference may keep.
func (c *checker) advice(a addr.Block, parts []sdk.Amount, over, left float64) string {
	var most sdk.Amount
	for _, p := range parts {
		if p.Value > most.Value {
			most = p
		}
	}
	if most.Value > over {
		how := remedy(most.Part)
		if own := c.blocks[a].Facts["remedy_"+most.Part]; own != "" {
			how = own + ", or " + how
		}
		return fmt.Sprintf("Reduce %s of %s from %s to %s or less (%s).", most.Part, a, human(most.Value),
			human(most.Value-over), how)
	}
	if left > 0 {
		return fmt.Sprintf(
			"Leave inference %s at most (lower gpu_memory_utilization), or place the blocks on different GPUs.",
			human(left))
	}
	return "Place the blocks on different GPUs, use LoRA, or a smaller model."
}

func remedy(part string) string {
	switch part {
	case "activations":
		return "lower the tokens of a micro-batch, or checkpoint activations"
	case "optimizer", "gradients":
		return "use LoRA, an 8-bit optimizer, or more ranks"
	case "kv_cache":
		return "lower max_model_len or max_num_seqs"
	default:
		return "use a smaller model, a quantized one, or more GPUs"
	}
}

func smallestCard(need float64) string {
	for _, g := range usualCards() {
		// Drivers and allocators use a part of a card.
		if need <= 0.93*g*gib {
			return fmt.Sprintf(": fits on a card with %.0f GiB", g)
		}
	}
	return ": more than any common card has"
}

func ceil2(x float64) float64 { return float64(int(x*100)+1) / 100 }

func human(bytes float64) string {
	switch {
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", bytes/gib)
	case bytes >= 1<<20:
		return fmt.Sprintf("%.0f MiB", bytes/(1<<20))
	default:
		return fmt.Sprintf("%.0f KiB", bytes/(1<<10))
	}
}
