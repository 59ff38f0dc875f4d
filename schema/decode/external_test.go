package decode_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Environments and trainers are given the settings that a recipe states about the trajectory API of an external server.
func TestAnExternalTrajectoryAPIIsHandedOn(t *testing.T) {
	t.Parallel()
	given, err := spec.Of(outputs.Trajectories{})
	if err != nil {
		t.Fatal(err)
	}
	server := &decode.External{Endpoint: cty.StringVal("https://rl.example.com/team/api/"),
		Values: map[string]cty.Value{"token": cty.StringVal("secret")}}
	reached, err := server.Reach(given, kind.Trajectories)
	if err != nil {
		t.Fatal(err)
	}
	var got outputs.Trajectories
	if err := spec.Decode(reached.Outputs, given, &got); err != nil {
		t.Fatal(err)
	}
	if want := (outputs.Trajectories{URL: "https://rl.example.com/team/api", Token: "secret"}); got != want ||
		reached.URL != want.URL {
		t.Errorf("handed on as %+v, checked at %s; expected %+v", got, reached.URL, want)
	}
	server.Endpoint = cty.StringVal("rl.example.com")
	if _, err := server.Reach(given, kind.Trajectories); err == nil {
		t.Error("an endpoint without a scheme is taken")
	}
}
