# Tests of quickstart.hcl: recipe test recipes/quickstart.test.hcl

run "plan" {
  command = plan

  assert {
    condition     = plan.counts.create == 5
    error_message = "the recipe declares ${length(plan.operations)} blocks"
  }
  assert {
    condition     = plan.operations["trainer.tiny.policy"].config.steps == 300
    error_message = "the default is 300 steps"
  }
}

run "a_short_training" {
  variables {
    steps = 3
  }

  assert {
    condition     = status == "completed" && trainer.tiny.policy.step == 3
    error_message = "it ended ${status} after step ${trainer.tiny.policy.step}"
  }
  assert {
    condition     = metrics["trainer.tiny.policy"].loss.last < 100
    error_message = "the loss is ${metrics["trainer.tiny.policy"].loss.last}"
  }
  assert {
    condition     = length([for e in events : e if e.type == "weights"]) == 3
    error_message = "each step publishes its weights"
  }
}

run "more_steps_resume_it" {
  command   = plan
  continues = "a_short_training"
  variables {
    steps = 5
  }

  assert {
    condition     = plan.operations["trainer.tiny.policy"].action == "resume"
    error_message = "its action is ${plan.operations["trainer.tiny.policy"].action}"
  }
}

run "text_is_no_number_of_steps" {
  command      = plan
  expect_error = "Wrong type"
  variables {
    steps = "many"
  }
}
