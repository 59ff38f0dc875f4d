package sync

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
)

// The transports, as docs/weights.md describes them.
const (
	auto    = "auto"
	live    = "live"    // copied from the trainer's memory between two steps of the engine; requests continue
	ipc     = "ipc"     // copied from the trainer's memory while requests are held
	nccl    = "nccl"    // sent by the trainer while requests are held, through NCCL between GPUs and gloo without
	lora    = "lora"    // an adapter in files
	reload  = "reload"  // files; the one that every trainer and every inference plugin offers
	restart = "restart" // files, and a new server
)

// diff is for machines that share no files: the files of reload, sent as the difference from those before.
const diff = delta.Transport

// transports are the ways in which weights can move, the quickest first.
func transports() []string { return []string{live, ipc, nccl, lora, reload, diff, restart} }

// throughFiles says whether the weights lie in files that can be loaded again.
func throughFiles(transport string) bool {
	return transport == reload || transport == lora || transport == restart
}

// inMemory says whether inference copies the weights out of the trainer's memory.
func inMemory(transport string) bool { return transport == live || transport == ipc }

// candidates are the transports that auto may choose, the best first. live changes the weights under requests that are
// being answered, so it is chosen only where those go on with the new weights anyway.
func (c Config) candidates() []string {
	if c.Transport != auto {
		return []string{c.Transport}
	}
	list := transports()
	if c.InFlight != sdksync.Keep && c.InFlight != sdksync.Auto {
		list = slices.DeleteFunc(list, func(name string) bool { return name == live })
	}
	return list
}

// listed reads an output that is a list of texts; nothing when there is none.
func listed(r spec.Ref, name string) []string {
	if r.Values == cty.NilVal || !r.Values.Type().IsObjectType() || !r.Values.Type().HasAttribute(name) {
		return nil
	}
	v, _ := r.Values.GetAttr(name).Unmark()
	if v.IsNull() || !v.IsWhollyKnown() {
		return nil
	}
	if v.Type() == cty.String {
		return []string{v.AsString()}
	}
	if !v.CanIterateElements() {
		return nil
	}
	var out []string
	for it := v.ElementIterator(); it.Next(); {
		if _, e := it.Element(); e.Type() == cty.String && !e.IsNull() {
			out = append(out, e.AsString())
		}
	}
	return out
}

// offers is what a block can do: its output "transports", or reload when it has none. Files can be sent wherever they
// can be written or loaded.
func offers(r spec.Ref, transport string) bool {
	if transport == diff {
		transport = reload
	}
	list := listed(r, "transports")
	if len(list) == 0 {
		return transport == reload
	}
	return slices.Contains(list, transport)
}

// unable says why a transport cannot be used; empty: it can. Unshared says why files cannot be.
func (c Config) unable(transport, unshared string) string {
	var lacking []string
	for _, side := range append([]spec.Ref{c.Trainer}, c.Inference...) {
		if !offers(side, transport) {
			lacking = append(lacking, side.Address)
		}
	}
	if len(lacking) > 0 {
		return "not offered by " + strings.Join(lacking, ", ")
	}
	if throughFiles(transport) {
		return unshared
	}
	place := strings.Join(listed(c.Trainer, "memory"), "")
	if transport == nccl {
		return c.apart(place)
	}
	if !inMemory(transport) || place == "" {
		return ""
	}
	for _, r := range c.Inference {
		if reach := listed(r, "reach"); !slices.Contains(reach, place) {
			return fmt.Sprintf("out of reach of %s: the weights of %s are in %s, it sees %s", r.Address, c.Trainer.Address,
				place, strings.Join(reach, ", "))
		}
	}
	return ""
}

// apart says why the trainer cannot send its tensors to every inference block; empty: it can. It listens on loopback,
// unless its environment names another address: then the recipe sets nccl, too.
func (c Config) apart(place string) string {
	kind, _, _ := strings.Cut(place, ":")
	for _, r := range c.Inference {
		reach := listed(r, "reach")
		if here, there := strings.Join(listed(c.Trainer, "machine"), ""), strings.Join(listed(r, "machine"),
			""); c.Transport == auto && here != there {
			return fmt.Sprintf("%s and %s are on different machines", c.Trainer.Address, r.Address)
		}
		if place == "" || len(reach) == 0 {
			continue
		}
		if !strings.HasPrefix(reach[0], kind+":") {
			return fmt.Sprintf("only one of %s and %s computes on a GPU", c.Trainer.Address, r.Address)
		}
		if kind == "gpu" && len(reach) == 1 && reach[0] == place {
			return fmt.Sprintf("%s and %s are on one GPU, and NCCL needs one for each", c.Trainer.Address, r.Address)
		}
	}
	return ""
}

// choose returns the transport to use and why, or why the one that was asked for cannot be.
func (c Config) choose(unshared string) (transport, why string, err error) {
	var skipped []string
	for _, name := range c.candidates() {
		reason := c.unable(name, unshared)
		if reason == "" {
			if c.Transport != auto {
				return name, "the recipe says so", nil
			}
			return name, strings.Join(append(skipped, name+": offered by all"), "; "), nil
		}
		skipped = append(skipped, name+": "+reason)
	}
	if c.Transport != auto {
		return "", "", &sdk.Error{
			Summary: fmt.Sprintf("transport = %q is %s", c.Transport, c.unable(c.Transport, unshared)),
			Detail:  "possible here: " + c.common(unshared),
			Remedy:  `set transport = "auto" or one of those that are possible`,
		}
	}
	return "", "", &sdk.Error{
		Summary: "the trainer and the inference blocks offer no transport in common",
		Detail:  strings.Join(skipped, "; "),
		Remedy:  "use plugins that share one; reload needs a folder that both sides see, delta does not",
	}
}

// common lists the transports that could be used, for people.
func (c Config) common(unshared string) string {
	var names []string
	for _, name := range transports() {
		if c.unable(name, unshared) == "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
