package sync

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// candidates are the transports that auto may choose, the best first. live changes the weights under requests that are
// being answered, so it is chosen only where those go on with the new weights anyway.
func (c Config) candidates() []transport.Name {
	if c.Transport != string(transport.Auto) {
		return []transport.Name{transport.Name(c.Transport)}
	}
	list := transport.All()
	if c.InFlight != sdksync.Keep && c.InFlight != sdksync.Auto {
		list = slices.DeleteFunc(list, func(name transport.Name) bool { return name == transport.Live })
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

// supports reports whether a block supports a transport by its output "transports".
func supports(r spec.Ref, name transport.Name) bool {
	return name.Supported(transport.Names(listed(r, "transports")))
}

// unable explains why a transport cannot be used; empty: it can. Unshared says why files cannot be.
func (c Config) unable(name transport.Name, unshared string) string {
	var lacking []string
	for _, side := range append([]spec.Ref{c.Trainer}, c.Inference...) {
		if !supports(side, name) {
			lacking = append(lacking, side.Address)
		}
	}
	if len(lacking) > 0 {
		return "not offered by " + strings.Join(lacking, ", ")
	}
	if name.Files() {
		return unshared
	}
	place := strings.Join(listed(c.Trainer, "memory"), "")
	if name == transport.NCCL {
		return c.apart(place)
	}
	if !name.Memory() || place == "" {
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
			""); c.Transport == string(transport.Auto) && here != there {
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
func (c Config) choose(unshared string) (chosen transport.Name, why string, err error) {
	var skipped []string
	for _, name := range c.candidates() {
		reason := c.unable(name, unshared)
		if reason == "" {
			if c.Transport != string(transport.Auto) {
				return name, "the recipe says so", nil
			}
			return name, strings.Join(append(skipped, string(name)+": offered by all"), "; "), nil
		}
		skipped = append(skipped, string(name)+": "+reason)
	}
	if c.Transport != string(transport.Auto) {
		return "", "", &sdk.Error{
			Summary: fmt.Sprintf("transport = %q is %s", c.Transport, c.unable(transport.Name(c.Transport), unshared)),
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
	for _, name := range transport.All() {
		if c.unable(name, unshared) == "" {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
