package worker

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestTheWorkerIsToldWhatIsReadOfItsEvents writes the JSON type of every field that the Go side reads of the worker's
// events. The worker's own tests check each event against it: one field of another type makes the whole event
// unreadable.
func TestTheWorkerIsToldWhatIsReadOfItsEvents(t *testing.T) {
	t.Parallel()
	types := map[string]string{}
	var walk func(reflect.Type)
	walk = func(s reflect.Type) {
		for i := range s.NumField() {
			f := s.Field(i)
			if f.Anonymous {
				walk(f.Type)
				continue
			}
			types[f.Tag.Get("json")] = jsonType(t, f.Type)
		}
	}
	walk(reflect.TypeFor[event]())
	got, err := json.MarshalIndent(types, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "..", "plugins", "grpo", "worker", "tests", "event_types.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got)+"\n" {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
	}
}

// jsonType is the name of a type in JSON schema; "any" is one that is not decoded.
func jsonType(t *testing.T, typ reflect.Type) string {
	t.Helper()
	if typ == reflect.TypeFor[json.RawMessage]() {
		return "any"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int64, reflect.Int:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Map:
		return "object of " + jsonType(t, typ.Elem())
	case reflect.Slice:
		return "array of " + jsonType(t, typ.Elem())
	case reflect.Interface:
		return "any"
	default:
		t.Fatalf("no JSON type for %s", typ)
		return ""
	}
}
