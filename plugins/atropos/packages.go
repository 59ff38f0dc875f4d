package atropos

import "github.com/recipe-rl/recipe/sdk"

// packages is what `recipe init` prepares: atroposlib, which brings datasets and math-verify, and the tasks of
// reasoning-gym. Environments that need more list their runtime.requirements. atroposlib itself asks for any version
// of what it uses. These are the versions with which Atropos's own environments were tried
// (make test-atropos-own): gymnasium 1.4 has no Taxi-v3 any more, and with transformers 4 a tokenizer that
// transformers 5 has saved cannot be loaded.
func packages(bool) sdk.Packages {
	return sdk.Packages{Requirements: []string{
		"atroposlib==0.4.0", "transformers==5.23.0", "datasets==5.2.0", "gymnasium==1.2.3", "openai==3.54.0",
		"pydantic-cli==10.0.0", "aiohttp==3.14.5", "reasoning-gym==0.1.25",
	}, Needs: []string{"atroposlib", "transformers"}}
}
