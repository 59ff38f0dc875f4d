package state

import "testing"

// FuzzRecord: whatever run.json and the journal hold, reading them is a record or an error.
func FuzzRecord(f *testing.F) {
	run := []byte(`{"format_version":2,"id":"r1","recipe":"x","file":"x.hcl","status":"running",` +
		`"blocks":{"trainer.tiny.p":{"phase":"ready","config":{"steps": 3}}}}`)
	f.Add(run, []byte(`{"journal":1,"run":"r1","after":0}`+"\n"+`{"n":1,"blocks":{"trainer.tiny.p":null}}`+"\n"))
	f.Add(run, []byte(`{"journal":1,"run":"r1","after":18446744073709551615}`+"\n"+`{"n":0,"run":null}`+"\n"))
	f.Add([]byte(`{"format_version":2,"id":"r1","blocks":{"trainer.tiny.p":null}}`), []byte("\n\n"))
	f.Fuzz(func(t *testing.T, snapshot, journal []byte) {
		r, err := parse(Dir("x"), snapshot)
		if err != nil {
			return
		}
		if r.ID == "" || r.Blocks == nil {
			t.Fatalf("a record without an id or blocks: %+v", r)
		}
		if len(journal) > 0 {
			_ = replay(r, journal)
		}
		for a, b := range r.Blocks {
			if b == nil {
				t.Fatalf("block %s is nil", a)
			}
		}
	})
}
