package grpo

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// metrics are those of worker/PROTOCOL.md. A loss of the user's reports others as well.
func metrics() sdk.Option {
	return worker.Metrics(
		spec.Metrics("loss/{total,policy,kl,entropy,auxiliary}", "", "parts of the loss"),
		spec.Metrics("clip/{high,low,dual}", "share of tokens", "tokens that the loss clips"),
		spec.Metrics("ratio/{mean,max}", "", "probability of a token: trained policy divided by old policy"),
		spec.Metrics("importance/{mean,max}", "", "weights of the off-policy correction"),
		spec.Metrics("entropy", "nats", "of the policy, mean over tokens"),
		spec.Metrics("{entropy,kl}/coefficient", "", ""),
		spec.Metrics("kl/{reference,old,reward,reward_coefficient}", "nats", "distance to another policy"),
		spec.Metrics("logprob/{mean,positive,negative}", "nats",
			"mean over tokens; where the advantage is positive or negative"),
		spec.Metrics("{grad_norm,learning_rate,optimizer_steps,optimizer_skipped,mfu,clip_fraction}", "", ""),
		spec.Metrics("groups/equal_dropped", "groups", "groups of equal scores that were left out"),
		spec.Metrics("rejected/frac", "share of tokens", ""),
		spec.Metrics("adv/*", "", "advantages"),
		spec.Metrics("env/*/adv/{mean,std,min,max}", "", "advantages of one environment"),
		spec.Metrics("tokens/per_second", "tokens per second", ""),
		spec.Metrics("memory/{device_peak,device_now,process_peak}", "bytes", ""),
		spec.Metrics("compute/*", "", "how a step was calculated"),
		spec.Metrics("*", "", "what a loss or an estimator of yours measures"),
	)
}
