package arithmetic

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

const gib = float64(1 << 30)

// usualCards are memories of GPUs that people have, in GiB, for a recipe that is planned away from its machine.
func usualCards() []float64 { return []float64{16, 24, 40, 48, 80, 96, 141, 192} }

// device is one GPU and the blocks on it.
type device struct {
	name   string
	blocks []addr.Block
}

// memory adds up each GPU's blocks and compares the sum with the card.
func (c *checker) memory(m Machine) {
	for _, d := range c.devices(m) {
		total, reserved := 0.0, 0.0
		var lines []string
		var largest struct {
			a     addr.Block
			need  float64
			parts []sdk.Amount
		}
		for _, a := range d.blocks {
			b := c.blocks[a]
			need, parts := sum(b.Amounts, "gpu_memory")
			share, _ := strconv.ParseFloat(b.Facts["gpu_memory_utilization"], 64)
			if share > 0 && m.GPUMemory > 0 {
				// The server takes its share whatever it needs; what it needs must fit into the share.
				take := share * m.GPUMemory
				if need > take {
					c.add("error", a, fmt.Sprintf("will not fit: it needs %s, gpu_memory_utilization = %g gives it %s", human(need), share, human(take)),
						strings.Join(explain(parts), "\n")+fmt.Sprintf("\nRaise gpu_memory_utilization to %.2f, or lower max_model_len.", ceil2(need/m.GPUMemory)))
				}
				lines = append(lines, fmt.Sprintf("%s: %s (%g of the card)", a, human(take), share))
				reserved += take
				total += take
				continue
			}
			if need == 0 {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s: %s", a, human(need)))
			lines = append(lines, explain(parts)...)
			total += need
			if need > largest.need {
				largest.a, largest.need, largest.parts = a, need, parts
			}
		}
		if total == 0 {
			continue
		}
		detail := strings.Join(lines, "\n")
		first := d.blocks[0]
		switch {
		case m.GPUMemory == 0:
			c.add("info", first, fmt.Sprintf("GPU %s needs about %s%s", d.name, human(total), smallestCard(total)), detail)
		case total > m.GPUMemory:
			c.add("error", first, fmt.Sprintf("will not fit: GPU %s needs %s and has %s", d.name, human(total), human(m.GPUMemory)),
				detail+"\n"+advice(largest.a, largest.parts, total-m.GPUMemory, m.GPUMemory-(total-reserved)))
		default:
			c.add("info", first, fmt.Sprintf("GPU %s: %s of %s", d.name, human(total), human(m.GPUMemory)), detail)
		}
	}
}

// devices groups blocks by the GPUs that they are placed on. Blocks without a device are dealt one after the other over
// the machine's GPUs; with fewer GPUs than they ask for together they share.
func (c *checker) devices(m Machine) []device {
	on := map[string][]addr.Block{}
	next := 0
	for _, a := range c.order {
		p := c.blocks[a].Meta.Placement
		if p == nil || (p.GPUs == 0 && len(p.Devices) == 0) {
			continue
		}
		names := p.Devices
		for len(p.Devices) == 0 && len(names) < p.GPUs {
			i := next
			if m.GPUs > 0 {
				i %= m.GPUs
			}
			names = append(names, strconv.Itoa(i))
			next++
		}
		for _, n := range names {
			if p.Host != "" {
				n = p.Host + "/" + n
			}
			on[n] = append(on[n], a)
		}
	}
	out := make([]device, 0, len(on))
	for n, blocks := range on {
		out = append(out, device{n, blocks})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// disk compares what checkpoints will take with what is free.
func (c *checker) disk(m Machine) {
	total := 0.0
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
		lines = append(lines, fmt.Sprintf("%s: %s", a, human(need)))
		lines = append(lines, explain(parts)...)
	}
	if total > 0 && m.DiskFree > 0 && total > m.DiskFree {
		c.add("error", first, fmt.Sprintf("checkpoints need %s of disk, %s is free", human(total), human(m.DiskFree)),
			strings.Join(lines, "\n")+"\nKeep fewer checkpoints, write them less often, or put the run on a larger disk.")
	}
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

// advice names the largest part of the largest block, and what it must come down to; or the share that inference may keep.
func advice(a addr.Block, parts []sdk.Amount, over, left float64) string {
	var most sdk.Amount
	for _, p := range parts {
		if p.Value > most.Value {
			most = p
		}
	}
	if most.Value > over {
		return fmt.Sprintf("Reduce %s of %s from %s to %s or less (%s).", most.Part, a, human(most.Value), human(most.Value-over), remedy(most.Part))
	}
	if left > 0 {
		return fmt.Sprintf("Leave inference %s at most (lower gpu_memory_utilization), or place the blocks on different GPUs.", human(left))
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
		// Drivers and allocators keep some of a card for themselves.
		if need <= 0.93*g*gib {
			return fmt.Sprintf(": fits a card of %.0f GiB", g)
		}
	}
	return ": more than any single usual card"
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
