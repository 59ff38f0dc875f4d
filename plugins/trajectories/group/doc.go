// Package group reads the JSON that environments post: one scored group of completions, or a list of them.
//
// Parsing happens once, when a group arrives. What leaves the package is a Group: a canonical JSON object that holds
// every field a trainer may ask for, in one order, ready to be spliced into a reply without being decoded again,
// together with the few numbers that the queue needs (how many sequences, how many tokens, which policy versions).
//
// Two readers do the work. The fast one accepts the JSON that real environments send and walks it once without
// allocating. What it does not recognize goes to the exact one, which builds a tree, applies the lax conversions that
// atroposlib's own server applies ("7" for 7, true for 1) and reports every mistake in the shape that its clients know.
// The fast reader may refuse anything; it must never accept what the exact one refuses.
package group
