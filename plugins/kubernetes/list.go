package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// list is an answer with many resources. Each is counted before it is decoded: three bytes of JSON can take two hundred
// bytes of memory, and a broken or hostile server must not exhaust the engine's.
type list[T any] struct{ Items []T }

// maxItem is the most bytes of a resource: the cluster's own store keeps nothing above 1.5 MiB.
const maxItem = 4 << 20

// limits bound a list.
type limits struct {
	items, bytes int // resources, and bytes of one
	values       int // of JSON, in all resources; a pod has some hundred
	depth        int
}

// ofList are the limits of all lists. A cluster has at most 5,000 nodes, and a run some thousand pods.
var ofList = limits{items: 100_000, bytes: maxItem, values: 8 << 20, depth: 100}

// read decodes an answer.
func (l *list[T]) read(from io.Reader) error { return l.within(from, ofList) }

func (l *list[T]) within(from io.Reader, most limits) error {
	d := json.NewDecoder(from)
	if err := begin(d, '{'); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name == "items" {
			err = l.items(d, most)
		} else {
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// begin reads the bracket that begins an object or a list.
func begin(d *json.Decoder, bracket json.Delim) error {
	t, err := d.Token()
	if err == nil && t != bracket {
		err = errors.New("it is no list of resources")
	}
	return err
}

func (l *list[T]) items(d *json.Decoder, most limits) error {
	if err := begin(d, '['); err != nil {
		return err
	}
	left := most.values
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		n, fits := bounded.CountJSON(raw, left, most.depth)
		if !fits || len(raw) > most.bytes || len(l.Items) == most.items {
			return fmt.Errorf("%w: a list has at most %d resources of %d bytes, with %d values in all", bounded.ErrTooLarge,
				most.items, most.bytes, most.values)
		}
		left -= n
		var item T
		if err := json.Unmarshal(raw, &item); err != nil {
			return err
		}
		l.Items = append(l.Items, item)
	}
	_, err := d.Token()
	return err
}
