package grpo

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// metrics are those of worker/PROTOCOL.md. A loss of the user's reports others as well.
func metrics() sdk.Option {
	return worker.Metrics(
		spec.Metrics("loss/{total,policy,kl,entropy}", "", "parts of the loss"),
		spec.Since("with a loss that has such a ratio", spec.Metrics("clip/{high,low,dual}", "share of tokens",
			"tokens that the loss clips")),
		spec.Since("with a loss that has such a ratio", spec.Metrics("ratio/{mean,max}", "",
			"probability of a token: trained policy divided by old policy")),
		spec.Since("with correction.importance other than none", spec.Metrics("importance/{mean,max}", "",
			"weights of the off-policy correction")),
		spec.Metrics("entropy", "nats", "of the policy, mean over tokens"),
		spec.Since("with a reference policy: kl.coefficient, kl.reward_coefficient or a loss that needs one",
			spec.Metrics("kl/reference", "nats", "distance to the reference policy")),
		spec.Since("with several optimizer steps a batch, or another setting that needs the old policy",
			spec.Metrics("kl/old", "nats", "distance to the policy before the step")),
		spec.With("kl.reward_coefficient", spec.Metrics("kl/{reward,reward_coefficient}", "",
			"distance to the reference policy in the reward, and its factor")),
		spec.Metrics("logprob/mean", "nats", "mean over tokens"),
		spec.Since("in steps with such a token", spec.Metrics("logprob/{positive,negative}", "nats",
			"mean over tokens whose advantage is positive or negative")),
		spec.Metrics("{grad_norm,learning_rate,optimizer_steps,optimizer_skipped}", "", ""),
		spec.Since("on a GPU whose peak is known, or with peak_tflops", spec.Metrics("mfu", "",
			"share of the device's peak that the model's arithmetic uses")),
		spec.Metrics("groups/equal_dropped", "groups", "groups of equal scores that were left out"),
		spec.Metrics("rejected/frac", "share of tokens", ""),
		spec.Metrics("adv/*", "", "advantages"),
		spec.Metrics("env/*/adv/{mean,std,min,max}", "", "advantages of one environment"),
		spec.Metrics("tokens/per_second", "tokens per second", ""),
		spec.Metrics("memory/process_peak", "bytes", ""),
		spec.Since("on a GPU", spec.Metrics("memory/device_{peak,now}", "bytes", "")),
		spec.Metrics("compute/*", "", "how a step was calculated"),
		spec.Metrics("*", "", "what a loss or an estimator of yours measures"),
	)
}
