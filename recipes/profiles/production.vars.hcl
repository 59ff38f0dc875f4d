trajectories_url = "https://rollouts.example.com/api"
timeout          = 60
batch_retry      = { attempts = 10, longest = 30 }
